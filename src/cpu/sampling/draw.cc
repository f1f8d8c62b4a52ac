// Draws a token from the logits of a row, in passes that never sort the vocabulary:
//
//   1. maximum of each block   finds NaN, the greedy token, and bounds for the next steps
//   2. candidates              top-k, top-p and min-p each keep the head of the order (most likely
//                              first): a bound on the logits says which blocks can hold any of it
//   3. draw                    by random bits, over the candidates in the order of ids
//
// Weights are whole numbers (core/sample_weight.h), so sums are exact and the GPU gets the same.
#include "cpu/sampling/draw.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>

#include "core/sample_weight.h"
#include "cpu/sampling/logits.h"

namespace tessera::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Top-p tries this many tokens first.
constexpr std::int64_t kUsualHead = 256;

// The buckets of top-p cover 32 nats together. Beyond that no token has any weight (2^-43 is 30
// nats).
constexpr std::size_t kBuckets = 1024;
constexpr double kBucketsPerNat = 32;

// The logit whose weight is this share of the largest one's, or a logit a little below it.
float logit_of(double share, float largest, double temperature) {
  return static_cast<float>(largest + temperature * std::log(share));
}

}  // namespace

bool TokenDraw::comes_first(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// ---- 1. maxima ----------------------------------------------------------------------------------

float TokenDraw::find_maxima(std::span<const float> logits) {
  maxima_.resize(logit_blocks(logits.size()));
  block_maxima(logits, maxima_);
  return largest_of(maxima_);
}

std::int32_t TokenDraw::first_largest(std::span<const float> logits, float largest) const {
  const auto block = std::find(maxima_.begin(), maxima_.end(), largest) - maxima_.begin();
  const auto begin = logits.begin() + block * static_cast<std::ptrdiff_t>(kLogitBlock);
  return static_cast<std::int32_t>(std::find(begin, logits.end(), largest) - logits.begin());
}

// ---- 2. candidates ------------------------------------------------------------------------------

// Fills weights_ and returns their sum.
std::uint64_t TokenDraw::weigh_all(std::span<const float> logits, float largest,
                                   double temperature) {
  weights_.resize(logit_blocks(logits.size()));
  block_weights(logits, largest, weight_scale(temperature), weights_);
  std::uint64_t total = 0;
  for (const std::uint64_t weight : weights_) total += weight;
  return total;
}

double TokenDraw::total(std::span<const float> logits, float largest, double temperature) {
  return static_cast<double>(weigh_all(logits, largest, temperature)) /
         static_cast<double>(kLargestWeight);
}

// The candidates become all logits that reach the threshold, in the order of ids. Needs maxima_.
void TokenDraw::collect(std::span<const float> logits, float threshold) {
  candidates_.clear();
  for (std::size_t block = 0; block < maxima_.size(); ++block) {
    if (maxima_[block] < threshold) continue;
    const std::size_t begin = block * kLogitBlock;
    const std::size_t end = std::min(begin + kLogitBlock, logits.size());
    for (std::size_t i = begin; i < end; ++i) {
      if (logits[i] >= threshold) {
        candidates_.push_back({logits[i], static_cast<std::int32_t>(i), 0});
      }
    }
  }
}

// The candidates become the `count` most likely tokens, in the order of ids. The count-th largest
// block maximum is a lower bound of the count-th largest logit, and few more than `count` logits
// pass it.
void TokenDraw::collect_top(std::span<const float> logits, std::int64_t count) {
  float threshold = -kInfinity;
  if (count <= static_cast<std::int64_t>(maxima_.size())) {
    ordered_maxima_ = maxima_;
    const auto nth = ordered_maxima_.begin() + (count - 1);
    std::nth_element(ordered_maxima_.begin(), nth, ordered_maxima_.end(), std::greater<>());
    threshold = *nth;
  }
  // Most of a row may be -inf: these are collected only if they are needed.
  collect(logits, std::max(threshold, std::numeric_limits<float>::lowest()));
  if (std::ssize(candidates_) < count) collect(logits, threshold);
  if (std::ssize(candidates_) <= count) return;
  ordered_ = candidates_;
  const auto last = ordered_.begin() + (count - 1);
  std::nth_element(ordered_.begin(), last, ordered_.end(), comes_first);
  std::erase_if(candidates_, [&](const Candidate& c) { return comes_first(*last, c); });
}

std::span<const TokenDraw::Candidate> TokenDraw::most_likely(std::span<const float> logits,
                                                             std::int64_t count) {
  if (count == 0) return {};
  collect_top(logits, count);
  std::sort(candidates_.begin(), candidates_.end(), comes_first);
  return candidates_;
}

// Keeps the shortest head of the order that weighs at least `wanted`. All candidates together weigh
// that much or more. Buckets of similar logits show where the head ends: the bucket there is halved
// until one candidate is left.
void TokenDraw::cut_tail(std::uint64_t wanted, float largest, double temperature) {
  const auto bucket_of = [&](const Candidate& c) {
    const double nats = (static_cast<double>(largest) - c.logit) / temperature;
    return static_cast<std::size_t>(std::min(nats * kBucketsPerNat, kBuckets - 1.0));
  };
  std::array<std::uint64_t, kBuckets> weights{};
  for (const Candidate& c : candidates_) weights[bucket_of(c)] += c.weight;
  std::size_t bucket = 0;
  for (; weights[bucket] < wanted; ++bucket) wanted -= weights[bucket];

  ordered_.clear();
  std::copy_if(candidates_.begin(), candidates_.end(), std::back_inserter(ordered_),
               [&](const Candidate& c) { return bucket_of(c) == bucket; });
  auto begin = ordered_.begin(), end = ordered_.end();
  while (end - begin > 1) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, comes_first);
    std::uint64_t weight = 0;
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

// Weighs the candidates and returns the sum.
std::uint64_t TokenDraw::weigh(float largest, double temperature) {
  const float scale = weight_scale(temperature);
  std::uint64_t sum = 0;
  for (Candidate& c : candidates_) {
    c.weight = sample_weight(c.logit, largest, scale);
    sum += c.weight;
  }
  return sum;
}

// ---- 3. draw ------------------------------------------------------------------------------------

// Without top-k, top-p and min-p: chooses a block by its weight, then a token within the block.
std::int32_t TokenDraw::draw_from_all(std::span<const float> logits, float largest,
                                      double temperature, std::uint64_t bits) {
  std::uint64_t left = multiply_high(bits, weigh_all(logits, largest, temperature));
  std::size_t block = 0;
  for (; left >= weights_[block]; ++block) left -= weights_[block];
  const float scale = weight_scale(temperature);
  std::size_t token = block * kLogitBlock;
  for (;; ++token) {
    const std::uint64_t weight = sample_weight(logits[token], largest, scale);
    if (left < weight) return static_cast<std::int32_t>(token);
    left -= weight;
  }
}

std::int32_t TokenDraw::draw(std::span<const float> logits, float largest, const SampleArgs& o,
                             std::uint64_t bits) {
  const std::int64_t vocab = static_cast<std::int64_t>(logits.size());
  const bool top_k = o.top_k > 0 && o.top_k < vocab, top_p = o.top_p<1, min_p = o.min_p> 0;
  if (!top_k && !top_p && !min_p) return draw_from_all(logits, largest, o.temperature, bits);
  // The number of tokens that pass a bound differs from row to row: reserve room for all of them.
  ordered_maxima_.reserve(maxima_.size());
  candidates_.reserve(logits.size());
  ordered_.reserve(logits.size());

  if (top_k) {
    collect_top(logits, o.top_k);
    const std::uint64_t total = weigh(largest, o.temperature);
    if (top_p) cut_tail(weight_share(total, o.top_p), largest, o.temperature);
  } else if (top_p) {
    const std::uint64_t total = weigh_all(logits, largest, o.temperature);
    const std::uint64_t wanted = weight_share(total, o.top_p);
    // The usual case: few tokens have most of the probability.
    collect_top(logits, std::min(kUsualHead, vocab));
    if (weigh(largest, o.temperature) < wanted) {
      // Otherwise collect every token that can be in the head. All tokens lighter than this weigh
      // less than (1 - top_p) * total together. Half of it leaves room for rounding.
      const double light = (1 - o.top_p) * static_cast<double>(total) /
                           static_cast<double>(kLargestWeight) / static_cast<double>(vocab) / 2;
      collect(logits, logit_of(light, largest, o.temperature));
      if (weigh(largest, o.temperature) < wanted) {  // top_p is 1 up to rounding
        collect(logits, -kInfinity);
        weigh(largest, o.temperature);
      }
    }
    cut_tail(wanted, largest, o.temperature);
  } else {
    collect(logits, logit_of(o.min_p / 2, largest, o.temperature));
    weigh(largest, o.temperature);
  }
  return draw_from_candidates(o.min_p, bits);
}

// Draws by weight, after min-p.
std::int32_t TokenDraw::draw_from_candidates(double min_p, std::uint64_t bits) {
  const std::uint64_t least = least_weight(min_p);
  std::uint64_t total = 0;
  for (const Candidate& c : candidates_) total += c.weight >= least ? c.weight : 0;
  std::uint64_t left = multiply_high(bits, total);
  for (const Candidate& c : candidates_) {
    const std::uint64_t weight = c.weight >= least ? c.weight : 0;
    if (left < weight) return c.id;
    left -= weight;
  }
  return -1;  // not reached: the most likely token has a weight
}

}  // namespace tessera::cpu
