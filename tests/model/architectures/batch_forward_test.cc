// A forward pass over many sequences of one pool gives each of them the logits that it gets alone
// in a cache of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/workspace.h"
#include "reference/parity.h"
#include "reference/test_tensor.h"
#include "support/allocations.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/files.h"
#include "support/refusal.h"
#include "tessera/model.h"

namespace tessera::test {
namespace {

using reference::compare;

constexpr std::int64_t kMaxStep = 48;  // of one sequence

// A sequence in the pool, and beside it the same stream in a cache of its own.
struct Twin {
  Twin(Context& ctx, const Model& model, PagePool& pool, const CachePolicy& policy,
       std::uint32_t stream_seed)
      : sequence(pool, policy, 200, kMaxStep),
        alone(model.make_cache(ctx, policy, 200, kMaxStep, kMaxStep)),
        random(stream_seed) {}

  std::vector<std::int32_t> next_ids(std::int64_t n, std::int64_t vocab) {
    std::vector<std::int32_t> next;
    for (std::int64_t i = 0; i < n; ++i) {
      next.push_back(static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(vocab)));
    }
    return next;
  }

  CacheSequence sequence;
  KvCache alone;
  std::mt19937 random;
};

class BatchForwardTest : public DeviceTest {
 protected:
  static constexpr CacheBatchLimits kLimits{
      .max_tokens = 256, .max_sequences = 12, .max_pages_of_a_sequence = 40};

  void load(const std::string& name, std::int64_t page_size = 8) {
    model_ = load_model(ctx(), data_path("goldens/" + name), {.dtype = DType::f32});
    pool_ = model_->make_pool(
        ctx(), {.limits = kLimits, .logit_rows = 64, .pages = 160, .page_size = page_size});
    batch_ = std::make_unique<CacheBatch>(ctx(), *pool_, kLimits);
  }
  std::int64_t vocab() const { return model_->config().vocab; }

  Array run(const CacheStep& step) {
    if (step.logits == 0) {
      model_->forward(ctx(), {.step = &step});
      return {};
    }
    const TestTensor logits = TestTensor::poisoned(ctx(), {step.logits, vocab()}, DType::f32);
    model_->forward(ctx(), {.step = &step, .logits = logits});
    EXPECT_TRUE(logits.surroundings_intact());
    return logits.read();
  }
  Array run(const std::vector<CacheBatch::Part>& parts, std::vector<std::int64_t>* begin) {
    const CacheStep& step = batch_->step(ctx(), parts);
    *begin = step.logit_begin;
    Array logits = run(step);
    batch_->commit();
    return logits;
  }
  // The logits of the last token of one sequence alone in a step.
  Array run_one(CacheSequence& sequence, const std::vector<std::int32_t>& ids) {
    std::vector<std::int64_t> begin;
    return run({{&sequence, ids, 1}}, &begin);
  }

  std::unique_ptr<Model> model_;
  std::unique_ptr<PagePool> pool_;
  std::unique_ptr<CacheBatch> batch_;
};
INSTANTIATE_TEST_SUITE_P(Devices, BatchForwardTest, testing::ValuesIn(test_devices()), device_name);

Array rows_of(const Array& array, std::int64_t begin, std::int64_t count) {
  Array rows({count, array.size(1)});
  std::copy_n(array.data.begin() + begin * array.size(1), rows.numel(), rows.data.begin());
  return rows;
}

// Prompts in chunks beside single tokens, some with logits of several rows and some with none, all
// policies at once, before and after their streams outgrow them.
TEST_P(BatchForwardTest, EachSequenceGetsTheLogitsThatItGetsAlone) {
  for (const char* name :
       {"neox-parallel", "neox-serial", "llama-gqa", "qwen3", "mistral-window"}) {
    SCOPED_TRACE(name);
    load(name);
    const bool windows = std::string(name) == "mistral-window";
    const CachePolicy sinks = windows ? CachePolicy::sinks(2, 6) : CachePolicy::sinks(4, 30);
    std::vector<Twin> twins;
    twins.reserve(8);
    for (const CachePolicy& policy :
         {CachePolicy::full(), CachePolicy::full(), CachePolicy::last(20), CachePolicy::last(9),
          CachePolicy::sinks(2, 5), sinks, CachePolicy::full()}) {
      twins.emplace_back(ctx(), *model_, *pool_, policy, static_cast<std::uint32_t>(twins.size()));
    }
    std::mt19937 random(11);
    const int steps = GetParam().is_cpu() ? 14 : 5;
    for (int i = 0; i < steps; ++i) {
      std::vector<std::vector<std::int32_t>> ids;
      std::vector<CacheBatch::Part> parts;
      std::vector<Twin*> in_step;
      ids.reserve(twins.size());
      for (Twin& twin : twins) {
        if (random() % 4 == 0) continue;
        const bool single = i > 3 && random() % 3 != 0;
        const std::int64_t wanted = single ? 1 : 1 + static_cast<std::int64_t>(random() % 24);
        const bool full = twin.sequence.policy().kind == CachePolicy::Kind::full;
        if (full && twin.sequence.seen() + wanted > 200) continue;
        const std::int64_t n = twin.sequence.step_size(wanted);
        ids.push_back(twin.next_ids(n, vocab()));
        const std::int64_t rows[] = {0, 1, 1, std::min<std::int64_t>(n, 4), n};
        parts.push_back(
            {&twin.sequence, ids.back(), std::min<std::int64_t>(rows[random() % 5], 9)});
        in_step.push_back(&twin);
      }
      if (parts.empty()) continue;
      std::vector<std::int64_t> begin;
      const Array logits = run(parts, &begin);
      for (std::size_t p = 0; p < parts.size(); ++p) {
        const std::int64_t rows = parts[p].logit_rows;
        const Array expected = run(in_step[p]->alone.step(ctx(), parts[p].ids, rows));
        if (rows == 0) continue;
        EXPECT_LT(compare(rows_of(logits, begin[p], rows), expected).max_rel, 1e-4)
            << "step " << i << ", " << to_string(parts[p].sequence->policy()) << ", " << rows
            << " of " << parts[p].ids.size() << " rows";
      }
    }
  }
}

TEST_P(BatchForwardTest, AForkContinuesAsTheStreamWouldHave) {
  load("llama-gqa");
  Twin twin(ctx(), *model_, *pool_, CachePolicy::full(), 1);
  const std::vector<std::int32_t> prompt = twin.next_ids(21, vocab());
  run_one(twin.sequence, prompt);
  run(twin.alone.step(ctx(), prompt));
  CacheSequence fork = twin.sequence.fork();
  const std::vector<std::int32_t> left{1, 2, 3}, right{4, 5, 6};
  for (std::size_t i = 0; i < 3; ++i) {
    std::vector<std::int64_t> begin;
    const std::vector<CacheBatch::Part> parts{{&twin.sequence, {&left[i], 1}, 1},
                                              {&fork, {&right[i], 1}, 1}};
    const Array logits = run(parts, &begin);
    const Array expected = run(twin.alone.step(ctx(), {&left[i], 1}));
    EXPECT_LT(compare(rows_of(logits, begin[0], 1), expected).max_rel, 1e-4);
    EXPECT_GT(compare(rows_of(logits, begin[1], 1), expected).max_rel, 1e-4);
  }
  // The fork's stream, alone.
  Twin other(ctx(), *model_, *pool_, CachePolicy::full(), 1);
  run(other.alone.step(ctx(), prompt));
  run(other.alone.step(ctx(), right));
  const std::int32_t next = 7;
  EXPECT_LT(compare(run_one(fork, {next}), run(other.alone.step(ctx(), {&next, 1}))).max_rel, 1e-4);
}

TEST_P(BatchForwardTest, APrefixThatWasFoundGivesTheSameLogits) {
  for (const CachePolicy& policy :
       {CachePolicy::full(), CachePolicy::last(40), CachePolicy::sinks(3, 40)}) {
    SCOPED_TRACE(to_string(policy));
    load("neox-parallel");
    Twin first(ctx(), *model_, *pool_, policy, 2);
    const std::vector<std::int32_t> prompt = first.next_ids(37, vocab());
    const Array expected = run_one(first.sequence, prompt);
    CacheSequence again(*pool_, policy, 200, kMaxStep);
    const std::int64_t found = again.find_prefix(prompt);
    EXPECT_GE(found, 32);
    const std::vector<std::int32_t> rest(prompt.begin() + found, prompt.end());
    EXPECT_LT(compare(run_one(again, rest), expected).max_rel, 1e-4);
    std::int32_t a = 9, b = 9;
    for (int i = 0; i < 12; ++i) {
      a = reference::argmax_rows(run_one(first.sequence, {a})).front();
      b = reference::argmax_rows(run_one(again, {b})).front();
      EXPECT_EQ(a, b) << "token " << i;
    }
  }
}

TEST_P(BatchForwardTest, TakenBackTokensLeaveNoTrace) {
  for (const CachePolicy& policy :
       {CachePolicy::full(), CachePolicy::last(12), CachePolicy::sinks(2, 10)}) {
    SCOPED_TRACE(to_string(policy));
    load("qwen3", 4);
    Twin twin(ctx(), *model_, *pool_, policy, 3);
    std::int64_t seen = 0;
    for (int i = 0; i < 12; ++i) {
      const std::int64_t n = twin.sequence.step_size(5);
      std::vector<std::int32_t> ids = twin.next_ids(n, vocab());
      run_one(twin.sequence, ids);
      const std::int64_t keep = 1 + i % n;
      twin.sequence.truncate(seen + keep);
      seen += keep;
      ids.resize(static_cast<std::size_t>(keep));
      run(twin.alone.step(ctx(), ids));
      const std::int32_t next = 5;
      const Array expected = run(twin.alone.step(ctx(), {&next, 1}));
      EXPECT_LT(compare(run_one(twin.sequence, {next}), expected).max_rel, 1e-4) << i;
      ++seen;
    }
  }
}

// An observer sees all rows, and the logits are those of the rows that were asked for.
TEST_P(BatchForwardTest, AnObserverSeesAllRows) {
  load("llama-gqa");
  Twin a(ctx(), *model_, *pool_, CachePolicy::full(), 4),
      b(ctx(), *model_, *pool_, CachePolicy::sinks(2, 30), 5);
  const std::vector<std::int32_t> ids_a = a.next_ids(20, vocab()), ids_b = b.next_ids(7, vocab());
  const std::vector<CacheBatch::Part> parts{{&a.sequence, ids_a, 1}, {&b.sequence, ids_b, 2}};
  std::vector<std::int64_t> begin;
  const Array expected = run(parts, &begin);
  a.sequence.clear();
  b.sequence.clear();
  const CacheStep& step = batch_->step(ctx(), parts);
  const TestTensor logits = TestTensor::poisoned(ctx(), {3, vocab()}, DType::f32);
  std::vector<std::int64_t> levels;
  model_->forward(
      ctx(),
      {.step = &step, .logits = logits, .observe = [&](std::int64_t level, const Tensor& hidden) {
         levels.push_back(level);
         EXPECT_EQ(hidden.size(0), 27);
       }});
  EXPECT_EQ(levels, (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_LT(compare(logits.read(), expected).max_rel, 1e-4);
}

// A pure decode step makes the calls of one stream: nothing is gathered, one attention for all.
TEST_P(BatchForwardTest, ADecodeStepMakesTheCallsOfOneStream) {
  load("llama-gqa");
  std::vector<Twin> twins;
  twins.reserve(3);
  for (std::uint32_t i = 0; i < 3; ++i) {
    const CachePolicy policy = i == 1 ? CachePolicy::last(9) : CachePolicy::full();
    twins.emplace_back(ctx(), *model_, *pool_, policy, i);
    run_one(twins.back().sequence, twins.back().next_ids(5 + 9 * i, vocab()));
  }
  const std::int32_t id = 3;
  std::vector<CacheBatch::Part> parts;
  for (Twin& twin : twins) parts.push_back({&twin.sequence, {&id, 1}, 1});
  ctx().trace().clear();
  std::vector<std::int64_t> begin;
  run(parts, &begin);
  EXPECT_EQ(ctx().trace().calls("embedding"), 1);
  EXPECT_EQ(ctx().trace().calls("append_attention"), 3);
}

// ---- memory -------------------------------------------------------------------------------------

TEST_P(BatchForwardTest, TheWorkspaceIsSizedOnce) {
  load("neox-parallel");
  const std::int64_t reserved = ctx().workspace_bytes();
  std::vector<CacheSequence> sequences;
  const CachePolicy policies[] = {CachePolicy::full(), CachePolicy::last(30),
                                  CachePolicy::sinks(3, 20)};
  for (int i = 0; i < 12; ++i) sequences.emplace_back(*pool_, policies[i % 3], 320, 256);
  std::mt19937 random(3);
  const std::vector<std::int32_t> ids(256, 1);
  Workspace::Frame frame(ctx().workspace());
  const Tensor logits = frame.take(DType::f32, {64, vocab()});
  for (int i = 0; i < 25; ++i) {
    std::vector<CacheBatch::Part> parts;
    std::int64_t left = kLimits.max_tokens;
    const std::uint32_t one_in = 1 + static_cast<std::uint32_t>(i) % 6;
    for (CacheSequence& sequence : sequences) {
      if (random() % one_in != 0 || left == 0) continue;
      if (sequence.seen() > 60) sequence.clear();
      const std::int64_t wanted = i % 3 == 0 ? 1 : 1 + static_cast<std::int64_t>(random() % 120);
      const std::int64_t n = sequence.step_size(std::min(wanted, left));
      if (sequence.pages_for(n) > 12) continue;
      parts.push_back({&sequence, std::span(ids).first(static_cast<std::size_t>(n)),
                       std::min<std::int64_t>(n, 1 + static_cast<std::int64_t>(random() % 4))});
      left -= n;
    }
    if (parts.empty()) continue;
    const CacheStep& step = batch_->step(ctx(), parts);
    model_->forward(ctx(), {.step = &step, .logits = logits.slice(0, 0, step.logits)});
    batch_->commit();
    ASSERT_EQ(ctx().workspace_bytes(), reserved) << "step " << i;
  }
}

TEST_P(BatchForwardTest, ADecodeStepTakesNothingFromTheHeap) {
  if (!AllocationCounter::works()) GTEST_SKIP() << "a sanitizer has its own operator new";
  load("llama-gqa");
  ctx().trace().enable(false);  // tracing keeps texts
  std::vector<CacheSequence> sequences;
  for (const CachePolicy& policy : {CachePolicy::full(), CachePolicy::full(), CachePolicy::last(20),
                                    CachePolicy::sinks(3, 20)}) {
    sequences.emplace_back(*pool_, policy, 200, kMaxStep);
  }
  std::int32_t id = 0;
  std::vector<CacheBatch::Part> parts;
  for (CacheSequence& sequence : sequences) parts.push_back({&sequence, {&id, 1}, 1});
  Workspace::Frame frame(ctx().workspace());
  const Tensor logits = frame.take(DType::f32, {4, vocab()});
  const auto step = [&] {
    id = (id + 7) % 300;
    const CacheStep& next = batch_->step(ctx(), parts);
    model_->forward(ctx(), {.step = &next, .logits = logits});
    batch_->commit();
  };
  for (int i = 0; i < 40; ++i) step();  // the window and the sinks roll
  const AllocationCounter counter;
  for (int i = 0; i < 100; ++i) step();  // whole pages come and go
  EXPECT_EQ(counter.count(), 0);
}

TEST(MakePool, TakesWhatFits) {
  Context ctx({.threads = 1,
               .memory = [](Device) { return DeviceMemory{.free = 64 << 20, .total = 64 << 20}; }});
  const auto model = load_model(ctx, data_path("goldens/llama-gqa"));
  PoolRequest request{
      .limits = {.max_tokens = 16, .max_sequences = 4, .max_pages_of_a_sequence = 10},
      .page_size = 16};
  EXPECT_EQ(model->make_pool(ctx, request)->options().pages, 40);
  request.limits.max_sequences = 100'000;
  const auto pool = model->make_pool(ctx, request);
  EXPECT_LT(pool->options().pages, 1'000'000);
  EXPECT_GT(pool->bytes(), 8 << 20);
  EXPECT_LT(pool->bytes(), 32 << 20);
  request.pages = 1'000'000;
  EXPECT_THROW(model->make_pool(ctx, request), Error);
  request.pages = 7;
  EXPECT_EQ(model->make_pool(ctx, request)->options().pages, 7);
}

TEST(MakePool, RefusesWhatIsTooSmallForOneSequence) {
  Context ctx({.threads = 1,
               .memory = [](Device) { return DeviceMemory{.free = 16 << 20, .total = 16 << 20}; }});
  const auto model = load_model(ctx, data_path("goldens/llama-gqa"));
  try {
    model->make_pool(
        ctx,
        {.limits = {.max_tokens = 16, .max_sequences = 2, .max_pages_of_a_sequence = 100'000}});
    FAIL() << "was not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    EXPECT_NE(std::string(error.what()).find("the KV cache of 6400000 tokens needs"),
              std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("the largest context that fits is"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tessera::test
