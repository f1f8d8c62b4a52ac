#include "tessera/cache_batch.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "cache/cache_memory.h"
#include "cache/sequence_plan.h"
#include "cache/step_ahead.h"
#include "cache/step_writer.h"
#include "cache/stream_layout.h"
#include "core/checked.h"
#include "core/format.h"
#include "tessera/buffer.h"

namespace tessera {
namespace {

CacheBatchLimits checked_limits(const CacheBatchLimits& limits) {
  const std::int64_t sizes[] = {limits.max_tokens, limits.max_sequences,
                                limits.max_pages_of_a_sequence, limits.width_step};
  if (*std::min_element(std::begin(sizes), std::end(sizes)) >= 1) return limits;
  fail(ErrorCode::invalid_argument,
       "cache: steps of {} tokens of {} sequences of {} pages, in tables of multiples of {}; each "
       "must be at least 1",
       limits.max_tokens, limits.max_sequences, limits.max_pages_of_a_sequence, limits.width_step);
}

}  // namespace

std::int64_t cache_batch_bytes(const CacheBatchLimits& limits) {
  return step_block_bytes(checked_limits(limits));
}

Tensor CacheStep::on_host(const Tensor& tensor) const {
  if (!tensor.defined()) return {};
  Tensor result = tensor;
  result.data = const_cast<char*>(host_block) + (static_cast<char*>(tensor.data) - device_block);
  result.device = Device::cpu();
  return result;
}

struct CacheBatch::State {
  State(Context& ctx, PagePool& of, const CacheBatchLimits& given)
      : pool(&of),
        limits(checked_limits(given)),
        host_block(step_block_bytes(limits)),
        device_block(ctx, ctx.device().is_cpu() ? 0 : host_block.bytes()),
        ahead(host_block.bytes()),
        writer(limits) {
    const auto most = static_cast<std::size_t>(limits.max_sequences);
    sequences.reserve(most);
    sorted.reserve(most);
    plans.reserve(most);
    parts.reserve(most);
    step.row_begin.reserve(most);
    step.logit_begin.reserve(most);
    step.groups.reserve(8);
    step.logit_groups.reserve(8);
    step.pool = pool;
    step.batch_invariant = pool->device().is_cpu() || limits.batch_invariant;
  }

  void pad();
  void check(const Context& ctx, std::span<const Part> given);
  void check_part(const Part& part) const;
  void plan(std::span<const Part> given);
  void upload(Context& ctx, std::int64_t bytes);

  PagePool* pool;
  CacheBatchLimits limits;
  Buffer host_block;         // the small tensors of a step
  CacheMemory device_block;  // the same on a GPU
  StepAhead ahead;
  std::int64_t uploads = 0;
  StepWriter writer;
  CacheStep step;
  std::vector<CacheSequence*> sequences;  // of the latest step
  std::vector<CacheSequence*> sorted;
  std::vector<CacheSequence::Plan> plans;
  std::vector<StepPart> parts;
};

void CacheBatch::State::check_part(const Part& part) const {
  if (part.sequence == nullptr || part.sequence->pool_ != pool) {
    fail(ErrorCode::invalid_argument, "cache: a part of a step must be a sequence of its pool");
  }
  const std::int64_t tokens = std::ssize(part.ids);
  if (tokens < 1) {
    fail(ErrorCode::invalid_argument,
         "cache: a step of {} tokens was asked for; it must bring at least 1", tokens);
  }
  const std::int64_t most = part.sequence->step_size(tokens);
  if (tokens > most) {
    fail(ErrorCode::invalid_argument,
         "cache: a step of {} tokens was asked for; the next one takes 1..{}, as step_size() says",
         tokens, most);
  }
  if (part.logit_rows < 0 || part.logit_rows > tokens) {
    fail(ErrorCode::invalid_argument, "cache: logits of {} tokens were asked for in a step of {}",
         part.logit_rows, tokens);
  }
}

void CacheBatch::State::check(const Context& ctx, std::span<const Part> given) {
  if (ctx.device() != pool->device()) {
    fail(ErrorCode::invalid_argument, "cache: the cache is on {}, but the context runs on {}",
         pool->device(), ctx.device());
  }
  std::int64_t tokens = 0;
  sorted.clear();
  for (const Part& part : given) {
    check_part(part);
    tokens += std::ssize(part.ids);
    sorted.push_back(part.sequence);
  }
  if (given.empty() || tokens > limits.max_tokens || std::ssize(given) > limits.max_sequences) {
    fail(ErrorCode::invalid_argument,
         "cache: a step of {} tokens of {} sequences was asked for; this batch takes 1..{} tokens "
         "of 1..{} sequences",
         tokens, given.size(), limits.max_tokens, limits.max_sequences);
  }
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    fail(ErrorCode::invalid_argument,
         "cache: a sequence was given twice; all its tokens of a step belong in one part");
  }
}

// First, all pages that leave go back to the pool. Then it is known which pages are still shared.
void CacheBatch::State::plan(std::span<const Part> given) {
  plans.clear();
  for (const Part& part : given) {
    plans.push_back(part.sequence->plan_leaving(std::ssize(part.ids)));
    part.sequence->begin_plan(plans.back());
  }
  std::int64_t needed = 0, widest = 0;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const CacheSequence& sequence = *given[i].sequence;
    CacheSequence::Plan& plan = plans[i];
    sequence.plan_pages(std::ssize(given[i].ids), plan);
    if (plan.copied >= 0) pool->release(plan.copied);
    needed += plan.pages();
    widest = std::max(widest, sequence.pages() - plan.leaving + plan.new_sinks + plan.new_line);
  }
  if (needed <= pool->free_pages() && widest <= limits.max_pages_of_a_sequence) return;

  const std::int64_t free = pool->free_pages();
  for (std::size_t i = given.size(); i-- > 0;) given[i].sequence->undo_plan(plans[i]);
  if (widest > limits.max_pages_of_a_sequence) {
    fail(ErrorCode::invalid_argument,
         "cache: a sequence of {} pages is in the step; this batch takes up to {}", widest,
         limits.max_pages_of_a_sequence);
  }
  fail(ErrorCode::out_of_memory,
       "the step needs {} more pages of {} tokens, and {} of the KV cache's {} are free", needed,
       pool->options().page_size, free, pool->options().pages);
}

// Rows for nobody, if all parts are the one next token of a stream.
void CacheBatch::State::pad() {
  static constexpr std::int32_t kAnyId[] = {0};
  const auto is_stream = [](const StepPart& part) {
    return part.tokens() == 1 && part.logit_rows == 1;
  };
  if (!limits.pads || !std::all_of(parts.begin(), parts.end(), is_stream)) return;
  const std::size_t most =
      static_cast<std::size_t>(std::min(limits.max_sequences, limits.max_tokens));
  const std::size_t rows = std::min(std::bit_ceil(parts.size()), most);
  while (parts.size() < rows) parts.push_back({.ids = kAnyId, .logit_rows = 1});
}

void CacheBatch::State::upload(Context& ctx, std::int64_t bytes) {
  if (pool->device().is_cpu() || !device_block.is_there()) return;
  copy_bytes(ctx, device_block.data(), pool->device(), host_block.data(), Device{}, bytes);
}

CacheBatch::CacheBatch(Context& ctx, PagePool& pool, const CacheBatchLimits& limits)
    : state_(std::make_unique<State>(ctx, pool, limits)) {}

CacheBatch::~CacheBatch() = default;
CacheBatch::CacheBatch(CacheBatch&&) noexcept = default;
CacheBatch& CacheBatch::operator=(CacheBatch&&) noexcept = default;

const CacheBatchLimits& CacheBatch::limits() const { return state_->limits; }
std::int64_t CacheBatch::uploads() const { return state_->uploads; }

const CacheStep& CacheBatch::step(Context& ctx, std::span<const Part> parts) {
  State& state = *state_;
  state.check(ctx, parts);
  state.plan(parts);
  state.sequences.clear();
  state.parts.clear();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    CacheSequence& sequence = *parts[i].sequence;
    sequence.take_pages(ctx, state.plans[i]);
    state.sequences.push_back(&sequence);
    state.parts.push_back({.layout = sequence.layout_.get(),
                           .policy = sequence.policy_,
                           .begin = sequence.seen_,
                           .ids = parts[i].ids,
                           .logit_rows = parts[i].logit_rows,
                           .sinks = sequence.sinks_,
                           .line = sequence.line_,
                           .line_begin = sequence.line_begin_,
                           .is_prompt = parts[i].is_prompt && state.pool->device().is_cpu()});
  }
  state.pad();
  char* host = static_cast<char*>(state.host_block.data());
  char* device = state.pool->device().is_cpu() ? host : state.device_block.data();
  const std::int64_t bytes =
      state.writer.write(state.parts, host, device, state.pool->device(), state.step);
  state.step.host_block = host;
  state.step.device_block = device;
  state.step.ahead = state.step.rows.defined() ? &state.ahead : nullptr;
  if (!state.ahead.begin(state.step, bytes)) {
    state.upload(ctx, bytes);
    ++state.uploads;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i].sequence->add_tokens(parts[i].ids);
  return state.step;
}

void CacheBatch::commit() {
  for (CacheSequence* sequence : state_->sequences) sequence->index_whole_pages();
  state_->sequences.clear();
}

void CacheBatch::forget(const CacheSequence& sequence) { std::erase(state_->sequences, &sequence); }

}  // namespace tessera
