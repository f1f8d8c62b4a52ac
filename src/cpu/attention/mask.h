// Which keys of a row a mask hides in a partial tile.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "tessera/mask.h"

namespace tessera::cpu {

// Calls hide(begin, end) for the spans of [k0, k1) that the query at row i, position p, may not
// see. Spans may overlap; together they are exactly the keys that allows() refuses.
template <typename F>
void for_each_hidden_span(const Mask& mask, std::int64_t i, std::int64_t p, std::int64_t k0,
                          std::int64_t k1, F&& hide) {
  if (mask.kind() == Mask::Kind::blocks) {
    const std::int64_t block = mask.pattern().block();
    const std::span<const std::int32_t> row = mask.pattern().row(i / block);
    std::int64_t gap = k0;  // keys between two visible blocks are hidden
    for (auto c = std::lower_bound(row.begin(), row.end(), k0 / block);
         c != row.end() && *c * block < k1; ++c) {
      if (gap < *c * block) hide(gap, *c * block);
      gap = (*c + 1) * block;
    }
    if (gap < k1) hide(gap, k1);
  }
  if (mask.left() >= 0) {  // from the end of the sinks to the start of the window
    const std::int64_t begin = std::max(k0, mask.n_sink());
    const std::int64_t end = std::min(k1, p - std::min(p, mask.left()));
    if (begin < end) hide(begin, end);
  }
  if (mask.right() >= 0 && mask.right() < k1 - 1 - p) {
    hide(std::max(k0, p + mask.right() + 1), k1);
  }
}

}  // namespace tessera::cpu
