// From logits to a token. Bias and penalties, if there are any, change a copy of the logits. Then a
// token is drawn (cpu/sampling/draw.h).
#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>

#include "core/fail.h"
#include "core/penalty.h"
#include "core/sample_weight.h"
#include "cpu/sampling/draw.h"
#include "ops/sampling_table.h"
#include "tessera/sampling.h"

namespace tessera {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void check_ranges(const SamplingOptions& o) {
  for (const SamplingOption& option : sampling_table()) {
    if (option.accepts(option.value(o))) continue;
    fail(ErrorCode::invalid_argument, "{} is {}; it must be {}", option.name, option.value(o),
         option.accepted);
  }
  for (const auto& [id, bias] : o.logit_bias) {
    if (std::isnan(bias) || bias == kInfinity) {
      fail(ErrorCode::invalid_argument,
           "the logit bias of token {} is {}; it must be a finite number, or -inf to forbid the "
           "token",
           id, bias);
    }
  }
}

void check_bias_ids(const SamplingOptions& options, std::int64_t vocab) {
  for (const auto& [id, bias] : options.logit_bias) {
    if (id < 0 || id >= vocab) {
      fail(ErrorCode::invalid_argument,
           "logit_bias names token {}; the vocabulary has the tokens 0 to {}", id, vocab - 1);
    }
  }
}

[[noreturn]] void refuse_logit(std::int64_t id, float logit) {
  fail(ErrorCode::invalid_argument,
       "the logit of token {} is {}: the model's numbers have left their range; try f32 or bf16, "
       "or check the checkpoint",
       id, logit);
}

}  // namespace

void check(const SamplingOptions& options, std::int64_t vocab) {
  check_ranges(options);
  check_bias_ids(options, vocab);
}

namespace {

// Of the entries of an id, the last one counts.
void keep_last_bias(std::vector<std::pair<std::int32_t, float>>& bias) {
  std::unordered_set<std::int32_t> later;
  std::reverse(bias.begin(), bias.end());
  std::erase_if(bias, [&](const auto& entry) { return !later.insert(entry.first).second; });
  std::reverse(bias.begin(), bias.end());
}

}  // namespace

struct Sampler::Draw : cpu::TokenDraw {};

Sampler::Sampler(const SamplingOptions& options)
    : options_(options), draw_(std::make_unique<Draw>()) {
  check_ranges(options_);
  keep_last_bias(options_.logit_bias);
}
Sampler::~Sampler() = default;
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(Sampler&&) noexcept = default;

// ---- tokens seen so far -------------------------------------------------------------------------

void Sampler::see(std::int32_t id, bool generated) {
  const std::size_t i = static_cast<std::size_t>(id);
  if (i >= is_seen_.size()) {
    is_seen_.resize(i + 1, 0);
    counts_.resize(i + 1, 0);
  }
  if (is_seen_[i] == 0) seen_.push_back(id);
  is_seen_[i] = 1;
  if (generated) ++counts_[i];
}

void Sampler::see_prompt(std::span<const std::int32_t> ids) {
  for (const std::int32_t id : ids) {
    if (id < 0) fail(ErrorCode::invalid_argument, "the prompt holds the token {}", id);
    see(id, false);
  }
}

void Sampler::reserve(std::int64_t vocab) {
  const std::size_t size = static_cast<std::size_t>(vocab);
  if (is_seen_.size() >= size) return;
  is_seen_.resize(size);
  counts_.resize(size);
  seen_.reserve(size);
}

// ---- bias and penalties -------------------------------------------------------------------------

bool Sampler::has_penalties() const {
  return options_.repetition_penalty != 1 || options_.presence_penalty != 0 ||
         options_.frequency_penalty != 0;
}

std::span<const float> Sampler::adjusted(std::span<const float> logits) {
  const SamplingOptions& o = options_;
  const bool penalties = has_penalties();
  if (o.logit_bias.empty() && (!penalties || seen_.empty())) return logits;
  check_bias_ids(o, static_cast<std::int64_t>(logits.size()));
  adjusted_.assign(logits.begin(), logits.end());
  reserve(static_cast<std::int64_t>(logits.size()));
  for (const auto& [id, bias] : o.logit_bias) {
    const std::size_t i = static_cast<std::size_t>(id);
    adjusted_[i] = logits[i] + bias;
  }
  if (!penalties) return adjusted_;
  for (const std::int32_t id : seen_) {
    const std::size_t i = static_cast<std::size_t>(id);
    if (i >= adjusted_.size()) {
      fail(ErrorCode::invalid_argument, "token {} was seen, but there are only {} logits", id,
           adjusted_.size());
    }
    adjusted_[i] = penalised_logit(adjusted_[i], o.repetition_penalty, o.presence_penalty,
                                   o.frequency_penalty, counts_[i]);
  }
  return adjusted_;
}

// ---- the draw -----------------------------------------------------------------------------------

float Sampler::largest_of(std::span<const float> logits) {
  const float largest = draw_->find_maxima(logits);
  if (std::isnan(largest) || largest == kInfinity) {
    const auto bad = std::find_if(logits.begin(), logits.end(),
                                  [](float v) { return std::isnan(v) || v == kInfinity; });
    refuse_logit(bad - logits.begin(), *bad);
  }
  if (largest == -kInfinity) {
    fail(ErrorCode::invalid_argument, "every one of the {} logits is -inf: no token is possible",
         logits.size());
  }
  return largest;
}

void Sampler::report(std::span<const float> logits, std::int64_t top_logprobs, Sampled& sampled) {
  const float largest = largest_of(logits);
  const double log_total = largest + std::log(draw_->total(logits, largest, 1.0));
  const auto logprob = [&](std::int32_t id) {
    return static_cast<float>(logits[static_cast<std::size_t>(id)] - log_total);
  };
  sampled.token.logprob = logprob(sampled.token.id);
  for (const auto& c : draw_->most_likely(logits, top_logprobs)) {
    sampled.top.push_back({c.id, logprob(c.id)});
  }
}

Sampled Sampler::sample(std::span<const float> logits, std::int64_t top_logprobs) {
  const std::int64_t vocab = static_cast<std::int64_t>(logits.size());
  if (vocab == 0) fail(ErrorCode::invalid_argument, "sampling needs at least one logit");
  if (vocab > kMostLogits) {
    fail(ErrorCode::unsupported, "sampling takes at most {} logits, got {}", kMostLogits, vocab);
  }
  if (top_logprobs < -1 || top_logprobs > vocab) {
    fail(ErrorCode::invalid_argument,
         "top_logprobs is {}; it must be -1 (none) or from 0 to the vocabulary's {}", top_logprobs,
         vocab);
  }
  const std::span<const float> scores = adjusted(logits);
  const float largest = largest_of(scores);
  SampleArgs args;
  copy_draw_options(options_, args);
  Sampled sampled;
  sampled.token.id = is_greedy()
                         ? draw_->first_largest(scores, largest)
                         : draw_->draw(scores, largest, args, draw_bits(options_.seed, draws_));
  if (top_logprobs >= 0) report(logits, top_logprobs, sampled);
  accept(sampled.token.id);
  return sampled;
}

// ---- tokens drawn elsewhere ---------------------------------------------------------------------

std::optional<SampleArgs> Sampler::next_draw() const {
  if (!options_.logit_bias.empty() || has_penalties()) return std::nullopt;
  SampleArgs args;
  copy_draw_options(options_, args);
  if (is_greedy()) args.temperature = 0;
  args.seed = options_.seed;
  args.draw = draws_;
  return args;
}

DrawOptions Sampler::next_options() const {
  return {.temperature = is_greedy() ? 0 : options_.temperature,
          .top_p = options_.top_p,
          .min_p = options_.min_p,
          .top_k = options_.top_k,
          .seed = options_.seed,
          .draw = draws_};
}

void Sampler::accept(std::int32_t id) {
  if (id < 0) fail(ErrorCode::invalid_argument, "token {} was drawn; ids start at 0", id);
  ++draws_;
  if (has_penalties()) see(id, true);
}

}  // namespace tessera
