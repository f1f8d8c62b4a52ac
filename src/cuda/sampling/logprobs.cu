// Logprobs on a GPU. The most likely tokens come first, with their logits (select.h). Then one
// block for each draw adds up the weights of its row (core/sample_weight.h), in whole numbers as on
// the CPU, and subtracts the logarithm of the sum from each logit.
#include "cuda/sampling/logprobs.h"

#include "core/rows.h"
#include "core/sample_weight.h"
#include "cuda/runtime/launch.h"
#include "cuda/sampling/select.h"
#include "cuda/sampling/sort_keys.cuh"
#include "cuda/tile/block_reduce.cuh"

namespace tessera::cuda {
namespace {

constexpr int kLogprobThreads = 1024, kLogprobWarps = kLogprobThreads / kWarp;

struct LogprobsCall {
  Rows logits, top_ids, top_logprobs;
  const std::int32_t *rows, *ids;
  float* logprobs;
  std::int64_t draws, top;
};

// The logarithm of the sum of exponentials, or NaN.
__device__ double log_total_of(const ElementKeys<float>& row) {
  Key largest = 0;
  row.for_each([&](Key key) {
    if (key > largest) largest = key;
  });
  largest = block_reduce<kLogprobWarps>(largest, Max());
  if (value_bits(largest) >= kInfinityBits || value_bits(largest) <= kLeastBits) return NAN;
  const float scale = weight_scale(1.0);
  Key weight = 0;
  row.for_each_value(
      [&](float logit, std::int64_t) { weight += sample_weight(logit, value_of(largest), scale); });
  const Key total = block_scan<kLogprobWarps>(weight).total;
  return value_of(largest) + log(static_cast<double>(total) / static_cast<double>(kLargestWeight));
}

__global__ void __launch_bounds__(kLogprobThreads) logprobs_of_draws(LogprobsCall call) {
  const std::int64_t n = call.logits.cols();
  for (std::int64_t d = blockIdx.x; d < call.draws; d += gridDim.x) {
    const std::int64_t row = call.rows[d], id = call.ids[d];
    const bool is_there = row >= 0 && row < call.logits.rows();
    const float* const logits = call.logits.row<const float>(is_there ? row : 0);
    const double log_total = is_there ? log_total_of({logits, 0, n}) : NAN;
    if (threadIdx.x == 0) {
      call.logprobs[d] = id >= 0 && id < n ? static_cast<float>(logits[id] - log_total) : NAN;
    }
    for (std::int64_t j = threadIdx.x; j < call.top; j += kLogprobThreads) {
      float& logprob = call.top_logprobs.row<float>(d)[j];
      logprob = static_cast<float>(logprob - log_total);
      if (isnan(log_total)) call.top_ids.row<std::int32_t>(d)[j] = -1;
    }
  }
}

std::int64_t top_of(const LogprobsArgs& args) {
  return args.top_ids.defined() ? args.top_ids.size(-1) : 0;
}

}  // namespace

std::int64_t logprobs_scratch_bytes(Context& ctx, const LogprobsArgs& args) {
  const std::int64_t top = top_of(args);
  if (top == 0) return 0;
  return select_scratch_bytes(ctx, args.ids.numel(), args.logits.size(-1), top);
}

void logprobs(Context& ctx, const LogprobsArgs& args) {
  if (args.ids.numel() == 0) return;
  const std::int64_t top = top_of(args);
  if (top > 0) {
    top_of_picked(ctx, "logprobs", args.logits, args.rows, args.top_logprobs, args.top_ids);
  }
  const LogprobsCall call{.logits = Rows(args.logits),
                          .top_ids = Rows(args.top_ids),
                          .top_logprobs = Rows(args.top_logprobs),
                          .rows = args.rows.ptr<const std::int32_t>(),
                          .ids = args.ids.ptr<const std::int32_t>(),
                          .logprobs = args.logprobs.ptr<float>(),
                          .draws = args.ids.numel(),
                          .top = top};
  const Launch launch(ctx, "logprobs");
  launch(logprobs_of_draws, {.blocks = call.draws, .threads = kLogprobThreads}, call);
}

}  // namespace tessera::cuda
