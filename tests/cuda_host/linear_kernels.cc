#include "cuda_host/linear_kernels.h"

#include "core/workspace.h"
#include "cuda/linear/copy_rows.h"
#include "cuda/linear/hopper/panels.h"
#include "cuda/linear/hopper/strips.h"
#include "cuda/linear/hopper/wide.h"
#include "cuda/linear/layout/decode_tiles.h"
#include "cuda/linear/layout/repack.h"
#include "cuda/linear/matmul.h"
#include "cuda/linear/portable/epilogue_pass.h"
#include "cuda/linear/portable/mma.h"
#include "cuda/linear/portable/plain.h"
#include "cuda/linear/portable/stream.h"
#include "cuda/quant/dequantize.h"
#include "cuda/runtime/state.h"

namespace tessera::cuda {
namespace {

bool halves_of_tiles(const LinearCall& call) {
  return call.product.x.dtype != DType::f32 &&
         call.product.weight.layout == WeightLayout::cuda_tiles;
}
bool one_kind(const Product& product) {
  return !product.gated() || alike(product.weight, product.up);
}

PanelSizes sizes_of(const LinearCall& call) {
  const Weight& weight = call.product.weight;
  const bool gated = call.product.gated();
  return {.tiles = weight.data.shape[0] * (gated ? 2 : 1),
          .pairs = pairs_of(weight),
          .m = call.m,
          .multiprocessors = state_of(call.ctx).limits().multiprocessors,
          .gated = gated};
}

}  // namespace

// ---- cuda.stream --------------------------------------------------------------------------------

bool takes_stream(const LinearCall& call) {
  const Weight& weight = call.product.weight;
  if (!one_kind(call.product) || weight.in_features == 0) return false;
  if (halves_of_tiles(call)) return call.m <= 16;
  return call.product.x.dtype != DType::f32 && weight.format == Format::dense &&
         weight.data.dtype == call.product.x.dtype && weight.in_features % 128 == 0 && call.m <= 8;
}
StreamPlan plan_stream(const LinearCall&) { return {}; }
void run_stream(const LinearCall&, const StreamPlan&) {}

// ---- Hopper -------------------------------------------------------------------------------------

bool takes_panels(const LinearCall& call) {
  const Weight& weight = call.product.weight;
  return state_of(call.ctx).limits().capability == 90 && one_kind(call.product) &&
         halves_of_tiles(call) && (weight.format != Format::int8 || weight.group == 0) &&
         (weight.format != Format::int4 || weight.group != 0);
}
PanelPlan plan_panels(const LinearCall& call) { return plan_panels(sizes_of(call)); }
void run_panels(const LinearCall&, const PanelPlan&, void*) {}

bool takes_wide(const LinearCall& call) {
  const Weight& weight = call.product.weight;
  return takes_panels(call) && weight.in_features % 8 == 0 &&
         (!call.product.gated() || (call.m >= kRoundedTokens && weight.out_features % 8 == 0));
}
WidePlan plan_wide(const LinearCall& call) { return plan_wide(sizes_of(call)); }
void run_wide(const LinearCall&, const WidePlan&, void*) {}

bool takes_strips(const LinearCall& call) {
  return call.m > 0 && call.m <= kMostStripTokens && !call.product.gated() &&
         call.product.weight.in_features % kSlab == 0 && takes_panels(call);
}
StripPlan plan_strips(const LinearCall& call) {
  const Weight& weight = call.product.weight;
  const DeviceLimits& limits = state_of(call.ctx).limits();
  return plan_strips({.tiles = static_cast<int>(weight.data.shape[0]),
                      .pairs = pairs_of(weight),
                      .code_bytes = pair_bytes(weight.format),
                      .scale_bytes = info(weight.format).bits == 4 ? 128 : 0,
                      .m = static_cast<int>(call.m),
                      .multiprocessors = limits.multiprocessors,
                      .shared_bytes = static_cast<int>(limits.shared_bytes)});
}
void run_strips(const LinearCall&, const StripPlan&) {}

// ---- cuda.mma -----------------------------------------------------------------------------------

bool takes_mma(const LinearCall& call) { return halves_of_tiles(call) && one_kind(call.product); }
MmaLaunch plan_mma(const LinearCall& call) {
  const Weight& weight = call.product.weight;
  const DeviceLimits& limits = state_of(call.ctx).limits();
  const MmaWork work{.n = weight.data.shape[0] * kTileHeight,
                     .pairs = pairs_of(weight),
                     .m = call.m,
                     .tile_bytes = pair_bytes(weight.format) + 128,
                     .multiprocessors = limits.multiprocessors,
                     .shared_bytes = limits.shared_bytes};
  return {.plan = plan_mma(work), .scratch_bytes = 4 * most_mma_part_floats(work)};
}
void run_mma(const LinearCall&, const MmaLaunch&, void*) {}

// ---- any weight ---------------------------------------------------------------------------------

void multiply_few(Context&, const Tensor&, const Weight&, float*) {}
void pack_rows(Context&, const Tensor&, const Tensor&) {}
void run_epilogue(Context&, const EpiloguePass&) {}
void copy_rows(Context&, const Tensor&, const Tensor&) {}
void dequantize(Context&, const Weight&, const Tensor&) {}
void unpack(Context&, const Weight&, const Weight&) {}
void decode_tiles(Context&, const Weight&, const Tensor&) {}

std::int64_t matmul_scratch_bytes() { return 5 << 20; }
bool matmul_adds(const Tensor&, const Addends& addends) {
  return !addends.bias.defined() && !addends.residual.defined();
}
void matmul(Context& ctx, const Tensor&, const Tensor&, const Tensor&, const Addends&) {
  Workspace::Frame(ctx.workspace()).take<char>(matmul_scratch_bytes());
}

}  // namespace tessera::cuda
