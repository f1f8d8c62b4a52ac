// From logits to a token, in passes that never sort the vocabulary:
//
//   1. bias and penalties         a copy of the logits, only where there are any
//   2. maximum of each block      finds NaN, the greedy token, and bounds for the next steps
//   3. candidates                 top-k, top-p and min-p each keep the head of the order (most
//   likely
//                                 first): a bound on the logits says which blocks can hold any of
//                                 it
//   4. draw                       by one random number, over the candidates in the order of ids
//
// Sums over the vocabulary are f32 within a block of 64 and f64 beyond.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>

#include "core/fail.h"
#include "core/philox.h"
#include "cpu/logits.h"
#include "tessera/sampling.h"

namespace tessera {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Keeps the sampler's random numbers apart from other uses of the same seed.
constexpr std::uint32_t kSamplerStream = 0x5A3717E5u;

// Top-p tries this many tokens first.
constexpr std::int64_t kUsualHead = 256;

// Top-p's buckets: together 32 nats, beyond which nothing is left to weigh (exp(-32) of 1e-14).
constexpr std::size_t kBuckets = 1024;
constexpr double kBucketsPerNat = 32;

// In [0, 1), of 53 bits.
double random_number(std::uint64_t seed, std::uint64_t draw) {
  const PhiloxWords words =
      philox(seed, {static_cast<std::uint32_t>(draw), static_cast<std::uint32_t>(draw >> 32), 0,
                    kSamplerStream});
  const std::uint64_t bits = (std::uint64_t{words[1]} << 32) | words[0];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

void check_number(const char* name, double value, bool ok, const char* accepted) {
  if (!ok) fail(ErrorCode::invalid_argument, "{} is {}; it must be {}", name, value, accepted);
}

void check_ranges(const SamplingOptions& o) {
  const auto finite = [](double v) { return std::isfinite(v); };
  check_number("temperature", o.temperature, finite(o.temperature) && o.temperature >= 0,
               "0 (greedy) or a positive number");
  if (o.top_k < 0) {
    fail(ErrorCode::invalid_argument, "top_k is {}; it must be 0 (all tokens) or more", o.top_k);
  }
  check_number("top_p", o.top_p, o.top_p > 0 && o.top_p <= 1, "above 0 and at most 1");
  check_number("min_p", o.min_p, o.min_p >= 0 && o.min_p <= 1, "from 0 to 1");
  check_number("repetition_penalty", o.repetition_penalty,
               finite(o.repetition_penalty) && o.repetition_penalty > 0, "a positive number");
  check_number("presence_penalty", o.presence_penalty, finite(o.presence_penalty),
               "a finite number");
  check_number("frequency_penalty", o.frequency_penalty, finite(o.frequency_penalty),
               "a finite number");
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

// A penalty is a difference of logits: f32 like them.
float penalised(float logit, double repetition) {
  return static_cast<float>(logit > 0 ? logit / repetition : logit * repetition);
}

}  // namespace

void check(const SamplingOptions& options, std::int64_t vocab) {
  check_ranges(options);
  check_bias_ids(options, vocab);
}

Sampler::Sampler(const SamplingOptions& options) : options_(options) { check_ranges(options_); }

bool Sampler::comes_first(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// ---- what was seen ------------------------------------------------------------------------------

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

// ---- 1. bias and penalties ----------------------------------------------------------------------

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
    float& logit = adjusted_[i];
    logit = penalised(logit, o.repetition_penalty);
    const int count = counts_[i];
    if (count > 0) logit -= static_cast<float>(o.presence_penalty + o.frequency_penalty * count);
  }
  return adjusted_;
}

// ---- 2. maxima ----------------------------------------------------------------------------------

// Fills maxima_; returns the largest of them.
float Sampler::find_maxima(std::span<const float> logits) {
  maxima_.resize(cpu::logit_blocks(logits.size()));
  cpu::block_maxima(logits, maxima_);
  const float largest = cpu::largest_of(maxima_);
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

std::int32_t Sampler::first_largest(std::span<const float> logits, float largest) const {
  const auto block = std::find(maxima_.begin(), maxima_.end(), largest) - maxima_.begin();
  const auto begin = logits.begin() + block * static_cast<std::ptrdiff_t>(cpu::kLogitBlock);
  return static_cast<std::int32_t>(std::find(begin, logits.end(), largest) - logits.begin());
}

// ---- 3. candidates ------------------------------------------------------------------------------

// Fills sums_: the weights of each block, and returns their sum.
double Sampler::total_weight(std::span<const float> logits, float largest, double temperature) {
  sums_.resize(cpu::logit_blocks(logits.size()));
  // Beyond f32's range a temperature is 0 for every difference that f32 logits can have.
  const float scale = static_cast<float>(
      std::min(1 / temperature, static_cast<double>(std::numeric_limits<float>::max())));
  cpu::block_sums(logits, largest, scale, sums_);
  double total = 0;
  for (const float sum : sums_) total += sum;
  return total;
}

// Candidates: all logits from the threshold on, in the order of ids. Needs maxima_.
void Sampler::collect(std::span<const float> logits, float threshold) {
  candidates_.clear();
  for (std::size_t block = 0; block < maxima_.size(); ++block) {
    if (maxima_[block] < threshold) continue;
    const std::size_t begin = block * cpu::kLogitBlock;
    const std::size_t end = std::min(begin + cpu::kLogitBlock, logits.size());
    for (std::size_t i = begin; i < end; ++i) {
      if (logits[i] >= threshold) {
        candidates_.push_back({logits[i], static_cast<std::int32_t>(i), 0.0});
      }
    }
  }
}

// Candidates: the `count` most likely, in the order of ids. The count-th largest of the block
// maxima bounds the count-th largest logit from below: few more than `count` pass it.
void Sampler::collect_top(std::span<const float> logits, std::int64_t count) {
  float threshold = -kInfinity;
  if (count <= static_cast<std::int64_t>(maxima_.size())) {
    ordered_maxima_ = maxima_;
    const auto nth = ordered_maxima_.begin() + (count - 1);
    std::nth_element(ordered_maxima_.begin(), nth, ordered_maxima_.end(), std::greater<>());
    threshold = *nth;
  }
  collect(logits, threshold);
  if (static_cast<std::int64_t>(candidates_.size()) <= count) return;
  ordered_ = candidates_;
  const auto last = ordered_.begin() + (count - 1);
  std::nth_element(ordered_.begin(), last, ordered_.end(), comes_first);
  std::erase_if(candidates_, [&](const Candidate& c) { return comes_first(*last, c); });
}

// Keeps the shortest head of the order that weighs at least `wanted`. Buckets of like weight say in
// which of them it ends; that one is halved until one candidate is left.
void Sampler::cut_tail(double wanted, float largest) {
  const auto bucket_of = [&](const Candidate& c) {
    const double nats = (static_cast<double>(largest) - c.logit) / options_.temperature;
    return static_cast<std::size_t>(std::min(nats * kBucketsPerNat, kBuckets - 1.0));
  };
  std::array<double, kBuckets> weights{};
  for (const Candidate& c : candidates_) weights[bucket_of(c)] += c.weight;
  std::size_t bucket = 0;
  for (; bucket + 1 < kBuckets && weights[bucket] < wanted; ++bucket) wanted -= weights[bucket];

  // Rounding may have left an empty bucket: back to the last one that holds something.
  while (weights[bucket] == 0 && bucket > 0) --bucket;
  ordered_.clear();
  std::copy_if(candidates_.begin(), candidates_.end(), std::back_inserter(ordered_),
               [&](const Candidate& c) { return bucket_of(c) == bucket; });
  auto begin = ordered_.begin(), end = ordered_.end();
  while (end - begin > 1) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, comes_first);
    double weight = 0;
    for (auto c = begin; c != middle; ++c) weight += c->weight;
    if (weight >= wanted) {
      end = middle;
    } else {
      wanted -= weight;
      begin = middle;
    }
  }
  const Candidate last = *begin;
  std::erase_if(candidates_, [&](const Candidate& c) { return comes_first(last, c); });
}

// Weighs the candidates; returns the sum.
double Sampler::weigh(float largest) {
  double sum = 0;
  for (Candidate& c : candidates_) {
    c.weight = std::exp((static_cast<double>(c.logit) - largest) / options_.temperature);
    sum += c.weight;
  }
  return sum;
}

// The logit that has this weight.
float Sampler::logit_of(double weight, float largest) const {
  return static_cast<float>(largest + options_.temperature * std::log(weight));
}

// ---- 4. draw ------------------------------------------------------------------------------------

// Without top-k, top-p and min-p: the block by its sum, the token within the block.
std::int32_t Sampler::draw_from_all(std::span<const float> logits, float largest, double random) {
  double left = random * total_weight(logits, largest, options_.temperature);
  std::size_t block = 0, last_block = 0;  // rounding may leave some at the end: then the last one
  for (; block < sums_.size(); ++block) {
    if (sums_[block] == 0) continue;
    last_block = block;
    if (left < sums_[block]) break;
    left -= sums_[block];
  }
  const std::size_t begin = last_block * cpu::kLogitBlock;
  const std::size_t end = std::min(begin + cpu::kLogitBlock, logits.size());
  std::size_t token = begin;
  for (std::size_t i = begin; i < end; ++i) {
    const double shifted = static_cast<double>(logits[i]) - largest;
    const double weight = std::exp(shifted / options_.temperature);
    if (weight == 0) continue;
    token = i;
    if (left < weight) break;
    left -= weight;
  }
  return static_cast<std::int32_t>(token);
}

std::int32_t Sampler::draw(std::span<const float> logits, float largest, double random) {
  const SamplingOptions& o = options_;
  const std::int64_t vocab = static_cast<std::int64_t>(logits.size());
  const bool top_k = o.top_k > 0 && o.top_k < vocab, top_p = o.top_p<1, min_p = o.min_p> 0;
  if (!top_k && !top_p && !min_p) return draw_from_all(logits, largest, random);

  if (top_k) {
    collect_top(logits, o.top_k);
    const double total = weigh(largest);
    if (top_p) cut_tail(o.top_p * total, largest);
  } else if (top_p) {
    const double total = total_weight(logits, largest, o.temperature);
    // The usual case: few tokens have most of the probability.
    collect_top(logits, std::min(kUsualHead, vocab));
    if (weigh(largest) < o.top_p * total) {
      // Otherwise all that can be in the head: tokens lighter than this, all taken together, weigh
      // less than (1 - top_p) * total. Half of it leaves room for rounding.
      const double light = (1 - o.top_p) * total / static_cast<double>(vocab) / 2;
      collect(logits, logit_of(light, largest));
      weigh(largest);
    }
    cut_tail(o.top_p * total, largest);
  } else {
    collect(logits, logit_of(o.min_p / 2, largest));
    weigh(largest);
  }
  return draw_from_candidates(random);
}

// By weight, after min-p.
std::int32_t Sampler::draw_from_candidates(double random) {
  const double min_p = options_.min_p;
  if (min_p > 0) std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < min_p; });

  double left = 0;
  for (const Candidate& c : candidates_) left += c.weight;
  left *= random;
  std::int32_t token = -1;
  for (const Candidate& c : candidates_) {
    if (c.weight == 0) continue;
    token = c.id;
    if (left < c.weight) break;
    left -= c.weight;
  }
  return token;
}

// ---- logprobs -----------------------------------------------------------------------------------

void Sampler::report(std::span<const float> logits, std::int64_t top_logprobs, Sampled& sampled) {
  const float largest = find_maxima(logits);
  const double log_total = largest + std::log(total_weight(logits, largest, 1.0));
  const auto logprob = [&](std::int32_t id) {
    return static_cast<float>(logits[static_cast<std::size_t>(id)] - log_total);
  };
  sampled.token.logprob = logprob(sampled.token.id);
  if (top_logprobs == 0) return;
  collect_top(logits, top_logprobs);
  std::sort(candidates_.begin(), candidates_.end(), comes_first);
  for (const Candidate& c : candidates_) sampled.top.push_back({c.id, logprob(c.id)});
}

Sampled Sampler::sample(std::span<const float> logits, std::int64_t top_logprobs) {
  const std::int64_t vocab = static_cast<std::int64_t>(logits.size());
  if (vocab == 0) fail(ErrorCode::invalid_argument, "sampling needs at least one logit");
  if (top_logprobs < -1 || top_logprobs > vocab) {
    fail(ErrorCode::invalid_argument,
         "top_logprobs is {}; it must be -1 (none) or from 0 to the vocabulary's {}", top_logprobs,
         vocab);
  }
  const std::span<const float> scores = adjusted(logits);
  const float largest = find_maxima(scores);
  const double random = random_number(options_.seed, draws_++);
  Sampled sampled;
  sampled.token.id = is_greedy() ? first_largest(scores, largest) : draw(scores, largest, random);
  if (top_logprobs >= 0) report(logits, top_logprobs, sampled);
  see(sampled.token.id, true);
  return sampled;
}

// ---- from the head alone ------------------------------------------------------------------------

std::int64_t Sampler::head_size() const {
  if (!options_.logit_bias.empty() || has_penalties()) return 0;
  return is_greedy() ? 1 : options_.top_k;
}

std::int32_t Sampler::sample_head(std::span<const float> logits,
                                  std::span<const std::int32_t> ids) {
  const std::int64_t head = head_size();
  if (head == 0 || logits.empty() || std::ssize(logits) > head || logits.size() != ids.size()) {
    fail(ErrorCode::invalid_argument,
         "a head of {} logits and {} ids was given to a sampler whose draws depend on {}",
         logits.size(), ids.size(),
         head == 0 ? "all logits" : fmt::format("1 to {} of each", head));
  }
  const float largest = logits.front();
  if (std::isnan(largest) || largest == kInfinity) refuse_logit(ids.front(), largest);
  if (largest == -kInfinity) {
    fail(ErrorCode::invalid_argument, "the largest logit is -inf: no token is possible");
  }
  const double random = random_number(options_.seed, draws_++);
  std::int32_t id = ids.front();
  if (!is_greedy()) {
    candidates_.clear();
    for (std::size_t i = 0; i < logits.size(); ++i) candidates_.push_back({logits[i], ids[i], 0.0});
    std::sort(candidates_.begin(), candidates_.end(),
              [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
    const double total = weigh(largest);
    if (options_.top_p < 1) cut_tail(options_.top_p * total, largest);
    id = draw_from_candidates(random);
  }
  see(id, true);
  return id;
}

}  // namespace tessera
