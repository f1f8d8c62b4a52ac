// Linear layers on the fake GPU. The kernels are stand-ins (linear_kernels.cc). They accept the
// same formats and shapes as the real ones, make the same plans and take scratch, but compute
// nothing.
#pragma once

#include <cstdint>

#include "cuda/linear/layout/tile_sizes.h"
#include "tessera/tensor.h"
#include "tessera/weight.h"

namespace tessera::test {

// Nobody reads or writes at these addresses.
inline Tensor fake_tensor(DType dtype, std::int64_t rows, std::int64_t columns) {
  alignas(64) static char memory[64];
  return Tensor(memory, dtype, {rows, columns}, Device::cuda());
}

// A weight of [n, k] in the published layout, or in tiles.
inline Weight fake_weight(Format format, DType dtype, std::int64_t n, std::int64_t k,
                          std::int64_t group = 0, bool tiled = false) {
  Weight weight = Weight::dense(fake_tensor(dtype, n, k));
  weight.format = format;
  weight.group = group;
  if (!tiled) return weight;
  const cuda::TileSizes sizes = cuda::tile_sizes(info(format).bits, group, n, k);
  weight.layout = WeightLayout::cuda_tiles;
  weight.data = fake_tensor(DType::u8, sizes.tiles, sizes.tile_bytes);
  weight.scales = fake_tensor(DType::f32, sizes.tiles, sizes.tile_scales);
  return weight;
}

}  // namespace tessera::test
