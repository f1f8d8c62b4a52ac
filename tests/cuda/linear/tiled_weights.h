// The packed weights that tests of tiles (src/cuda/linear/layout/tile_layout.h) go through.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/linear/layout/tile_sizes.h"
#include "support/linear_case.h"

namespace tessera::test {

// Every weight that has tiles, prepared.
inline std::vector<WeightCase> tiled_weights() {
  std::vector<WeightCase> weights;
  for (const WeightCase& weight : every_weight()) {
    if (!weight.prepared) continue;
    const QuantizeOptions& packed = *weight.packed;
    const std::int64_t group = packed.group >= 0 ? packed.group : info(packed.format).default_group;
    if (cuda::has_tiles(packed.format, group)) weights.push_back(weight);
  }
  return weights;
}

}  // namespace tessera::test
