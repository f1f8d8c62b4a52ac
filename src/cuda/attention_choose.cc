#include "cuda/attention_choose.h"

#include <algorithm>
#include <string_view>

#include "core/fail.h"
#include "cuda/attention/hopper.h"
#include "cuda/state.h"

namespace tessera::cuda {

std::vector<const char*> attention_kernels(Context& ctx, const AttentionArgs& args) {
  if (!hopper_takes(ctx.cuda_state().limits(), args)) return {kPlainAttention};
  if (args.q.shape[1] >= kHopperRows) return {kHopperAttention, kPlainAttention};
  return {kPlainAttention, kHopperAttention};
}

const char* choose(Context& ctx, const AttentionArgs& args) {
  const std::vector<const char*> kernels = attention_kernels(ctx, args);
  const std::string_view forced = ctx.cuda_state().forced_attention();
  if (forced.empty()) return kernels.front();
  const auto found = std::find(kernels.begin(), kernels.end(), forced);
  if (found == kernels.end()) {
    fail(ErrorCode::invalid_argument, "the kernel {} cannot run this call", forced);
  }
  return *found;
}

void force_attention_kernel(Context& ctx, const char* kernel) {
  ctx.cuda_state().force_attention(kernel);
}

}  // namespace tessera::cuda
