#include "cpu/sampling/logprobs.h"

#include <cmath>
#include <limits>
#include <vector>

#include "core/rows.h"
#include "core/thread_pool.h"
#include "cpu/sampling/draw.h"

namespace tessera::cpu {
namespace {

constexpr float kNoLogprob = std::numeric_limits<float>::quiet_NaN();

// What one draw reports.
struct Report {
  std::int32_t id;
  float* logprob;
  std::span<std::int32_t> top_ids;
  std::span<float> top_logprobs;

  void fill_with_nan() const {
    *logprob = kNoLogprob;
    for (std::int32_t& top : top_ids) top = -1;
    for (float& top : top_logprobs) top = kNoLogprob;
  }
  void fill(TokenDraw& draw, std::span<const float> logits) const {
    const float largest = draw.find_maxima(logits);
    if (std::isnan(largest) || std::isinf(largest)) return fill_with_nan();
    const double log_total =
        static_cast<double>(largest) + std::log(draw.total(logits, largest, 1.0));
    const auto logprob_of = [&](float logit) {
      return static_cast<float>(static_cast<double>(logit) - log_total);
    };
    const bool is_token = id >= 0 && id < std::ssize(logits);
    *logprob = is_token ? logprob_of(logits[static_cast<std::size_t>(id)]) : kNoLogprob;
    const auto top = draw.most_likely(logits, std::ssize(top_ids));
    for (std::size_t j = 0; j < top.size(); ++j) {
      top_ids[j] = top[j].id;
      top_logprobs[j] = logprob_of(top[j].logit);
    }
  }
};

}  // namespace

void logprobs(Context& ctx, const LogprobsArgs& args) {
  const Rows logits(args.logits), top_ids(args.top_ids), top_logprobs(args.top_logprobs);
  const std::size_t n = static_cast<std::size_t>(logits.cols());
  const std::size_t top = static_cast<std::size_t>(top_ids.cols());
  std::vector<TokenDraw> of_worker(static_cast<std::size_t>(ctx.threads()));
  ctx.pool().parallel_for(args.ids.numel(), [&](std::int64_t d, int worker) {
    Report report{.id = args.ids.ptr<const std::int32_t>()[d],
                  .logprob = args.logprobs.ptr<float>() + d,
                  .top_ids = {},
                  .top_logprobs = {}};
    if (top > 0) {
      report.top_ids = {top_ids.row<std::int32_t>(d), top};
      report.top_logprobs = {top_logprobs.row<float>(d), top};
    }
    const std::int64_t row = args.rows.ptr<const std::int32_t>()[d];
    if (row < 0 || row >= logits.rows()) return report.fill_with_nan();
    report.fill(of_worker[static_cast<std::size_t>(worker)], {logits.row<const float>(row), n});
  });
}

}  // namespace tessera::cpu
