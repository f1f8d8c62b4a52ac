#include "ops/check_tiles.h"

#include <cmath>
#include <cstdint>

#include "core/checked.h"
#include "cpu/linear/weight_tiles.h"
#include "cuda/linear/layout/tile_sizes.h"
#include "ops/check_weight.h"
#include "quant/codec.h"
#include "tessera/buffer.h"

namespace tessera {
namespace {

// One tensor of a weight in tiles, of a dtype that has been checked.
void check_tiles_of(const OpScope& op, const char* arg, const Tensor& tensor, std::int64_t tiles,
                    std::int64_t size) {
  op.shape(arg, tensor, {tiles, size});
  op.require(tensor.is_contiguous(), "{} must be contiguous, as prepare() makes it, got {}", arg,
             tensor);
  op.require(reinterpret_cast<std::uintptr_t>(tensor.data) % Buffer::kAlignment == 0,
             "{} must start on a {}-byte boundary, as prepare() makes it", arg, Buffer::kAlignment);
}

// Sizes of the tensors of a weight in tiles.
struct Tiles {
  std::int64_t tiles, bytes, scales;
};

Tiles tiles_of(const OpScope& op, const char* arg, const Weight& weight) {
  const bool on_cpu = weight.layout == WeightLayout::cpu_tiles;
  op.require(on_cpu ? cpu::has_tiles(weight.format, weight.group)
                    : cuda::has_tiles(weight.format, weight.group),
             "{} is {} in groups of {}, which has no layout {}; use prepare() to make one", arg,
             name(weight.format), weight.group, on_cpu ? "cpu_tiles" : "cuda_tiles");
  if (on_cpu) {
    const cpu::TileSizes sizes =
        cpu::tile_sizes(weight.format, weight.group, weight.out_features, weight.in_features);
    return {sizes.tiles, sizes.bytes, checked_mul(sizes.scales, cpu::kWeightTileN)};
  }
  const cuda::TileSizes sizes = cuda::tile_sizes(info(weight.format).bits, weight.group,
                                                 weight.out_features, weight.in_features);
  return {sizes.tiles, sizes.tile_bytes, sizes.tile_scales};
}

// A weight as prepare() makes it.
void check_tiles(const OpScope& op, const WeightNames& names, const Weight& weight) {
  op.require(weight.out_features >= 0 && weight.in_features >= 0, "{} has a negative size: {}",
             names.weight, weight);
  const Tiles sizes = tiles_of(op, names.weight, weight);
  const DType code_dtype = quant::code_dtype(weight.format);
  op.input(names.data, weight.data, {code_dtype});
  check_tiles_of(op, names.data, weight.data, sizes.tiles, sizes.bytes);
  if (weight.layout == WeightLayout::cuda_tiles) {
    op.input(names.scales, weight.scales, {cuda::tile_scale_dtype(weight.format)});
  } else {
    check_scale_dtype(op, names.scales, weight);
  }
  check_tiles_of(op, names.scales, weight.scales, sizes.tiles, sizes.scales);
  op.require(std::isfinite(weight.tensor_scale), "{}.tensor_scale is {}; it must be finite",
             names.weight, weight.tensor_scale);
  if (weight.layout == WeightLayout::cuda_tiles) {
    op.input(names.row_scales, weight.row_scales, {DType::f32});
    check_tiles_of(op, names.row_scales, weight.row_scales, 1, sizes.tiles * cuda::kTileHeight);
  }
  check_takes_zeros(op, names.weight, weight);
  if (!weight.zeros.defined()) return;
  op.input(names.zeros, weight.zeros, {code_dtype});
  check_tiles_of(op, names.zeros, weight.zeros, sizes.tiles, sizes.scales);
}

}  // namespace

void check_weight_for(const OpScope& op, const WeightNames& names, const Weight& weight,
                      Device device) {
  op.require(weight.defined(), "{} was not given", names.weight);
  const WeightLayout tiles = device.is_cpu() ? WeightLayout::cpu_tiles : WeightLayout::cuda_tiles;
  if (weight.layout == tiles) {
    check_tiles(op, names, weight);
  } else {
    check_weight(op, names, weight);
  }
}

}  // namespace tessera
