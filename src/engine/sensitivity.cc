#include "engine/sensitivity.h"

#include <algorithm>
#include <cmath>

#include "core/checked.h"
#include "core/fail.h"
#include "engine/forward_ids.h"
#include "tessera/buffer.h"
#include "tessera/kv_cache.h"
#include "tessera/sampling.h"

namespace tessera {
namespace {

// Tokens in one step. This bounds the memory for logits.
constexpr std::int64_t kStep = 64;

// Feeds tokens to a model, starting from an empty cache, and returns their logits on the host.
class Pass {
 public:
  Pass(Context& ctx, const Model& model, std::int64_t max_tokens)
      : ctx_(ctx),
        model_(model),
        cache_(model.make_cache(ctx, CachePolicy::full(), max_tokens, kStep, kStep)),
        vocab_(model.config().vocab),
        logits_(DType::f32, {kStep, vocab_}, ctx.device()),
        host_(static_cast<std::size_t>(checked_mul(kStep, vocab_))) {}

  // Returns the logits of at most kStep ids: [ids, vocab].
  std::span<const float> logits(std::span<const std::int32_t> ids) {
    const auto tokens = static_cast<std::int64_t>(ids.size());
    const Tensor result = logits_.tensor(DType::f32, {tokens, vocab_});
    forward_ids(ctx_, model_, cache_, ids, result);
    copy_bytes(ctx_, host_.data(), Device::cpu(), result.data, ctx_.device(), result.bytes());
    return std::span(host_).first(static_cast<std::size_t>(tokens * vocab_));
  }

 private:
  Context& ctx_;
  const Model& model_;
  KvCache cache_;
  std::int64_t vocab_;
  Buffer logits_;
  std::vector<float> host_;
};

double log_sum_exp(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

// Calls row(token, logits [vocab]) for each token of the text.
template <typename Row>
void for_each_row(Context& ctx, const Model& model, std::span<const std::int32_t> ids, Row&& row) {
  Pass pass(ctx, model, static_cast<std::int64_t>(ids.size()));
  const auto vocab = static_cast<std::size_t>(model.config().vocab);
  for (std::size_t begin = 0; begin < ids.size(); begin += kStep) {
    const auto part = ids.subspan(begin, std::min<std::size_t>(kStep, ids.size() - begin));
    const std::span<const float> logits = pass.logits(part);
    for (std::size_t i = 0; i < part.size(); ++i) row(begin + i, logits.subspan(i * vocab, vocab));
  }
}

}  // namespace

DivergenceProbe::DivergenceProbe(Context& ctx, const Model& dense,
                                 std::span<const std::int32_t> ids)
    : ids_(ids.begin(), ids.end()) {
  if (ids.empty()) fail(ErrorCode::invalid_argument, "the text to measure on has no tokens");
  const auto tokens = static_cast<std::int64_t>(ids.size());
  logprobs_.reserve(static_cast<std::size_t>(checked_mul(tokens, dense.config().vocab)));
  for_each_row(ctx, dense, ids_, [&](std::size_t, std::span<const float> logits) {
    const double norm = log_sum_exp(logits);
    for (const float logit : logits) logprobs_.push_back(static_cast<float>(logit - norm));
  });
}

double DivergenceProbe::divergence(Context& ctx, const Model& other) const {
  double sum = 0;
  for_each_row(ctx, other, ids_, [&](std::size_t token, std::span<const float> logits) {
    const double norm = log_sum_exp(logits);
    const float* expected = logprobs_.data() + token * logits.size();
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double logprob = expected[i];
      sum += std::exp(logprob) * (logprob - (logits[i] - norm));
    }
  });
  return sum / static_cast<double>(ids_.size());
}

std::vector<std::int32_t> self_written_text(Context& ctx, const Model& model, std::int64_t tokens) {
  const ModelConfig& config = model.config();
  const std::int64_t stop = config.eos.empty() ? 0 : config.eos.front();
  std::vector<std::int32_t> ids = {static_cast<std::int32_t>(config.bos >= 0 ? config.bos : stop)};
  Sampler sampler({.seed = 1});
  Pass pass(ctx, model, tokens);
  while (static_cast<std::int64_t>(ids.size()) < tokens) {
    ids.push_back(sampler.sample(pass.logits({&ids.back(), 1})).token.id);
  }
  return ids;
}

}  // namespace tessera
