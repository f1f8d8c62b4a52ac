#include "engine/speculator.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <unordered_map>

#include "core/checked.h"
#include "core/fail.h"
#include "engine/ngram_draft.h"
#include "engine/step_runner.h"
#include "tessera/page_pool.h"

namespace tessera::engine {
namespace {

class NgramSpeculator final : public Speculator {
 public:
  void guess(std::span<Guess> streams) override {
    for (const Guess& stream : streams) {
      of_stream_[stream.id].propose(stream.ids, stream.count, *stream.drafts);
    }
  }
  void forget(RequestId id) override { of_stream_.erase(id); }

 private:
  std::unordered_map<RequestId, NgramDraft> of_stream_;
};

// Runs a smaller model ahead of each stream, all streams in one pass. Its guess is always the most
// likely token.
class ModelSpeculator final : public Speculator {
 public:
  ModelSpeculator(Context& ctx, const Model& draft, const SpeculatorLimits& limits)
      : ctx_(ctx),
        limits_(limits),
        pool_(draft.make_pool(ctx, {.limits = batch_limits(limits), .prefix_cache = false})),
        batch_(ctx, *pool_, batch_limits(limits)),
        runner_(ctx, draft, limits.max_sequences) {}

  void guess(std::span<Guess> streams) override {
    for (const Guess& stream : streams) prepare(stream);
    // The first pass reads what the model has not seen yet, the others one guess each.
    while (collect(streams)) {
      const auto start = std::chrono::steady_clock::now();
      const CacheStep* step = next_step();
      if (step == nullptr) return;
      runner_.forward(*step);
      draw(*step);
      learn(step->tokens, std::chrono::steady_clock::now() - start);
    }
  }
  double seconds_per_guess() const override { return pass_seconds_; }
  void forget(RequestId id) override { of_stream_.erase(id); }

 private:
  static CacheBatchLimits batch_limits(const SpeculatorLimits& limits) {
    return {.max_tokens = limits.max_step_tokens,
            .max_sequences = limits.max_sequences,
            .max_pages_of_a_sequence = ceil_div(limits.context, PoolRequest{}.page_size)};
  }

  // A stream as the draft model has read it.
  struct Ahead {
    CacheSequence sequence;
    Sampler greedy{{.greedy = true}};
    std::vector<std::int32_t> ids{};  // of the stream, then guesses
    std::vector<Sampled> drawn{};
    bool waits = false;  // for the next step of the engine
  };

  Ahead& ahead_of(RequestId id) {
    const auto found = of_stream_.find(id);
    if (found != of_stream_.end()) return found->second;
    CacheSequence sequence(*pool_, CachePolicy::full(), limits_.context, limits_.max_step_tokens);
    return of_stream_.emplace(id, Ahead{.sequence = std::move(sequence)}).first->second;
  }

  // Takes back guesses that turned out wrong.
  void prepare(const Guess& stream) {
    stream.drafts->clear();
    Ahead& ahead = ahead_of(stream.id);
    const auto wrong =
        std::mismatch(ahead.ids.begin(), ahead.ids.end(), stream.ids.begin(), stream.ids.end());
    // The newest token is left to read, for its logits.
    const std::int64_t right =
        std::min(wrong.first - ahead.ids.begin(), std::ssize(stream.ids) - 1);
    if (ahead.sequence.seen() > right) ahead.sequence.truncate(right);
    ahead.ids.assign(stream.ids.begin(), stream.ids.end());
    ahead.waits = false;
  }

  // Collects the streams that want another guess. Returns false if there is none.
  bool collect(std::span<Guess> streams) {
    parts_.clear();
    drawing_.clear();
    std::int64_t rows = limits_.max_step_tokens;
    for (Guess& stream : streams) {
      Ahead& ahead = of_stream_.at(stream.id);
      const std::int64_t seen = ahead.sequence.seen(), known = std::ssize(ahead.ids);
      if (ahead.waits || rows == 0 || known > limits_.context) continue;
      if (std::ssize(*stream.drafts) >= stream.count) continue;
      const std::int64_t tokens = std::min(known - seen, rows);
      const bool reaches_end = tokens == known - seen;
      ahead.waits = !reaches_end;  // a long prompt is read over several steps of the engine
      rows -= tokens;
      parts_.push_back({.sequence = &ahead.sequence,
                        .ids = std::span(ahead.ids).subspan(static_cast<std::size_t>(seen),
                                                            static_cast<std::size_t>(tokens)),
                        .logit_rows = reaches_end ? 1 : 0});
      drawing_.push_back({&stream, &ahead});
    }
    return !parts_.empty();
  }

  // Null if no page is free: the streams then go on with the guesses they have.
  const CacheStep* next_step() {
    try {
      return &batch_.step(ctx_, parts_);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::out_of_memory) throw;
      return nullptr;
    }
  }

  void draw(const CacheStep& step) {
    draws_.clear();
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i].logit_rows == 0) continue;
      Ahead& ahead = *drawing_[i].second;
      draws_.push_back(
          {.sampler = &ahead.greedy, .row = step.logit_begin[i], .drawn = &ahead.drawn});
    }
    runner_.draw(draws_);
    std::size_t drawn = 0;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i].logit_rows == 0) continue;
      auto& [stream, ahead] = drawing_[i];
      if (draws_[drawn++].error) {  // no guess; the model itself will say what is wrong
        ahead->waits = true;
        continue;
      }
      const std::int32_t id = ahead->drawn.front().token.id;
      stream->drafts->push_back(id);
      ahead->ids.push_back(id);
    }
  }

  // A pass that has prompts to read, or what was not guessed for, says nothing about the others.
  void learn(std::int64_t rows, std::chrono::duration<double> time) {
    constexpr double kNewShare = 0.25;
    if (rows > 2 * std::ssize(parts_)) return;
    const double share = pass_seconds_ == 0 ? 1 : kNewShare;
    pass_seconds_ += share * (time.count() - pass_seconds_);
  }

  Context& ctx_;
  SpeculatorLimits limits_;
  std::unique_ptr<PagePool> pool_;
  CacheBatch batch_;
  StepRunner runner_;
  std::unordered_map<RequestId, Ahead> of_stream_;
  double pass_seconds_ = 0;  // one guess for each stream
  // Of the pass in progress; kept for their memory.
  std::vector<CacheBatch::Part> parts_;
  std::vector<std::pair<Guess*, Ahead*>> drawing_;
  std::vector<Draw> draws_;
};

}  // namespace

std::unique_ptr<Speculator> make_speculator(Context& ctx, const Model& model,
                                            const SpeculationOptions& options,
                                            const SpeculatorLimits& limits) {
  if (options.kind == SpeculationOptions::Kind::off) return nullptr;
  if (options.max_tokens < 1 || options.max_tokens > CacheBatch::kFewTokens - 1) {
    fail(ErrorCode::invalid_argument, "{} tokens at a time cannot be guessed; accepted: 1 to {}",
         options.max_tokens, CacheBatch::kFewTokens - 1);
  }
  if (options.kind == SpeculationOptions::Kind::ngram) return std::make_unique<NgramSpeculator>();
  if (options.draft == nullptr) {
    fail(ErrorCode::invalid_argument, "speculation with a draft model needs the model");
  }
  if (options.draft->config().vocab != model.config().vocab) {
    fail(ErrorCode::invalid_argument,
         "the draft model has a vocabulary of {} tokens, the model one of {}: they must share "
         "their tokenizer",
         options.draft->config().vocab, model.config().vocab);
  }
  return std::make_unique<ModelSpeculator>(ctx, *options.draft, limits);
}

}  // namespace tessera::engine
