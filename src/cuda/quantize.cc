// Both passes read an f32 copy of the matrix, in the workspace.
#include "cuda/quantize.h"

#include <bit>

#include "core/workspace.h"
#include "cuda/dequantize.h"
#include "cuda/encode.h"

namespace tessera::cuda {
namespace {

Tensor in_f32(Context& ctx, Workspace::Frame& frame, const Tensor& dense) {
  const Tensor x = frame.take(DType::f32, {dense.shape[0], dense.shape[1]});
  cuda::dequantize(ctx, Weight::dense(dense), x);
  return x;
}

}  // namespace

Scan scan(Context& ctx, const Tensor& dense) {
  const Device device = ctx.device();
  Workspace::Frame frame(ctx.workspace());
  const Tensor x = in_f32(ctx, frame, dense);
  ScanResult result;
  auto* on_device = frame.take<ScanResult>(1);
  copy_bytes(ctx, on_device, device, &result, Device::cpu(), sizeof(result));
  scan_elements(ctx, x, on_device);
  copy_bytes(ctx, &result, Device::cpu(), on_device, device, sizeof(result));

  if (result.not_finite == ScanResult::kNone) {
    return {.largest = std::bit_cast<float>(result.largest_bits)};
  }
  const auto at = static_cast<std::int64_t>(result.not_finite);
  Scan found{.finite = false, .row = at / dense.shape[1], .column = at % dense.shape[1]};
  copy_bytes(ctx, &found.value, Device::cpu(), x.ptr<float>() + at, device, sizeof(float));
  return found;
}

void encode(Context& ctx, const Tensor& dense, const Weight& weight, ScaleSearch search) {
  Workspace::Frame frame(ctx.workspace());
  encode_blocks(ctx, in_f32(ctx, frame, dense), weight, search);
}

}  // namespace tessera::cuda
