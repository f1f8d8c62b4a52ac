// The logits of a token do not depend on what else is in the step: they are the same bits alone,
// among 32 other streams, and beside a chunk of a prompt, for every weight format. On the CPU that
// is always so, on a GPU where the batch is asked for it.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "support/devices.h"
#include "support/files.h"
#include "tessera/cache_batch.h"
#include "tessera/model.h"
#include "tessera/page_pool.h"

namespace tessera::test {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::int64_t kStreams = 33, kChunk = 45, kContext = 128;

class Company {
 public:
  Company(Context& ctx, const Model& model, std::optional<DType> cache_dtype)
      : ctx_(ctx),
        model_(model),
        limits_{.max_tokens = 256,
                .max_sequences = 64,
                .max_pages_of_a_sequence = 16,
                .batch_invariant = true},
        pool_(model.make_pool(
            ctx, {.limits = limits_, .logit_rows = 64, .page_size = 16, .dtype = cache_dtype})),
        batch_(ctx, *pool_, limits_),
        logits_(DType::f32, {64, model.config().vocab}, ctx.device()) {
    const CachePolicy policies[] = {CachePolicy::full(), CachePolicy::last(9),
                                    CachePolicy::sinks(2, 7)};
    for (std::int64_t i = 0; i < kStreams; ++i) {
      sequences_.emplace_back(*pool_, policies[i % 3], kContext);
      read(sequences_.back(), random_ids(1 + i));
      tokens_.push_back(random_ids(1));
    }
  }

  Ids random_ids(std::int64_t count) {
    Ids ids;
    for (std::int64_t i = 0; i < count; ++i) {
      ids.push_back(
          static_cast<std::int32_t>(static_cast<std::int64_t>(random_()) % model_.config().vocab));
    }
    return ids;
  }

  // The logits of one token of stream i, which is then taken back.
  std::vector<float> alone(std::size_t i) {
    std::vector<CacheBatch::Part> parts{{&sequences_[i], tokens_[i], 1}};
    return run(parts).front();
  }

  // The same for all streams at once, beside a chunk of a prompt.
  std::vector<std::vector<float>> together() {
    CacheSequence prompt(*pool_, CachePolicy::full(), kContext);
    const Ids chunk = random_ids(kChunk);
    std::vector<CacheBatch::Part> parts{{&prompt, chunk, 0}};
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      parts.push_back({&sequences_[i], tokens_[i], 1});
    }
    std::vector<std::vector<float>> logits = run(parts);
    logits.erase(logits.begin());
    return logits;
  }

 private:
  void read(CacheSequence& sequence, const Ids& ids) {
    std::span<const std::int32_t> rest = ids;
    while (!rest.empty()) {
      const auto n = static_cast<std::size_t>(sequence.step_size(std::ssize(rest)));
      const CacheBatch::Part part{&sequence, rest.first(n), 0};
      model_.forward(ctx_, {.step = &batch_.step(ctx_, {&part, 1})});
      rest = rest.subspan(n);
    }
  }

  // The first logits of each part.
  std::vector<std::vector<float>> run(std::span<CacheBatch::Part> parts) {
    std::vector<std::int64_t> seen;
    for (const CacheBatch::Part& part : parts) seen.push_back(part.sequence->seen());
    const CacheStep& step = batch_.step(ctx_, parts);
    const Tensor logits = logits_.tensor().slice(0, 0, step.logits);
    model_.forward(ctx_, {.step = &step, .logits = logits});
    std::vector<std::vector<float>> result;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      parts[i].sequence->truncate(seen[i]);
      result.emplace_back();
      if (parts[i].logit_rows == 0) continue;
      const Tensor row = logits.select(0, step.logit_begin[i]);
      result.back().resize(static_cast<std::size_t>(model_.config().vocab));
      copy_bytes(ctx_, result.back().data(), Device::cpu(), row.data, ctx_.device(), row.bytes());
    }
    return result;
  }

  Context& ctx_;
  const Model& model_;
  CacheBatchLimits limits_;
  std::unique_ptr<PagePool> pool_;
  CacheBatch batch_;
  Buffer logits_;
  std::vector<CacheSequence> sequences_;
  std::vector<Ids> tokens_;
  std::mt19937 random_{11};
};

struct Case {
  const char* golden;
  std::optional<Format> format{};
  Activations activations = Activations::exact;
  DType dtype = DType::f32;
  std::optional<DType> cache_dtype{};
};

std::string describe(const Case& c) {
  return std::string(c.golden) + " " + std::string(c.format ? name(*c.format) : "dense") + " " +
         std::string(name(c.dtype)) + (c.activations == Activations::int8 ? " int8" : "") +
         (c.cache_dtype ? " cache " + std::string(name(*c.cache_dtype)) : "");
}

void expect_same_bits(Context& ctx, const Case& c) {
  LoadOptions options{.dtype = c.dtype};
  if (c.format) options.pack = QuantizeOptions{.format = *c.format};
  const auto model = load_model(ctx, data_path("goldens") / c.golden, options);
  Company company(ctx, *model, c.cache_dtype);
  const std::vector<std::vector<float>> together = company.together();
  for (std::size_t i = 0; i < together.size(); ++i) {
    EXPECT_EQ(together[i], company.alone(i)) << describe(c) << ", stream " << i;
  }
}

class BatchInvarianceTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, BatchInvarianceTest, testing::ValuesIn(test_devices()),
                         device_name);

TEST_P(BatchInvarianceTest, LogitsAreTheSameBitsInAnyCompany) {
  constexpr Format kFormats[] = {Format::int8,  Format::int4, Format::nvfp4,
                                 Format::mxfp4, Format::nf4,  Format::fp8};
  std::vector<Case> cases;
  for (const char* golden : {"neox-parallel", "qwen3"}) {
    cases.push_back({golden});
    cases.push_back({golden, {}, Activations::exact, DType::bf16});
    cases.push_back({golden, {}, Activations::exact, DType::f16, DType::i8});
    cases.push_back({golden, {}, Activations::exact, DType::f32, DType::f8e4m3});
    if (!GetParam().is_cpu()) {
      for (const Format format : kFormats) {
        cases.push_back({golden, format, Activations::exact, DType::f16});
      }
      continue;
    }
    cases.push_back({golden, Format::int4, Activations::int8, DType::f32, DType::f16});
    for (const Format format : kFormats) {
      cases.push_back({golden, format, Activations::exact});
      cases.push_back({golden, format, Activations::int8});
    }
  }
  for (const Case& c : cases) {
    Context context({.device = GetParam(), .threads = 2, .activations = c.activations});
    expect_same_bits(context, c);
  }
}

}  // namespace
}  // namespace tessera::test
