// The host side of quantize() on a GPU.
#include "cuda/quant/quantize.h"

#include <bit>

#include "core/half.h"
#include "core/type_switch.h"
#include "core/workspace.h"
#include "cuda/quant/encode.h"

namespace tessera::cuda {
namespace {

float element_at(Context& ctx, const Tensor& dense, std::int64_t row, std::int64_t column) {
  float value = 0;
  with_float_type(dense.dtype, [&](auto element) {
    const auto* at = dense.ptr<decltype(element)>() + row * dense.strides[0] + column;
    copy_bytes(ctx, &element, Device::cpu(), at, dense.device, sizeof(element));
    value = to_float(element);
  });
  return value;
}

}  // namespace

Scan scan(Context& ctx, const Tensor& dense) {
  const Device device = ctx.device();
  Workspace::Frame frame(ctx.workspace());
  ScanResult result;
  auto* on_device = frame.take<ScanResult>(1);
  copy_bytes(ctx, on_device, device, &result, Device::cpu(), sizeof(result));
  scan_elements(ctx, dense, on_device);
  copy_bytes(ctx, &result, Device::cpu(), on_device, device, sizeof(result));

  if (result.not_finite == ScanResult::kNone) {
    return {.largest = std::bit_cast<float>(result.largest_bits)};
  }
  const auto at = static_cast<std::int64_t>(result.not_finite);
  const std::int64_t row = at / dense.shape[1], column = at % dense.shape[1];
  return {
      .finite = false, .row = row, .column = column, .value = element_at(ctx, dense, row, column)};
}

void encode(Context& ctx, const Tensor& dense, const Weight& weight, ScaleSearch search) {
  encode_blocks(ctx, dense, weight, search);
}

}  // namespace tessera::cuda
