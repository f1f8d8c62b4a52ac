// A part of a weight: the one that one of several processes holds.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/context.h"
#include "tessera/weight.h"

namespace tessera::model {

// [begin, end) of a dimension; end -1: all of it.
struct Range {
  std::int64_t begin = 0, end = -1;

  bool is_all(std::int64_t n) const { return begin == 0 && (end < 0 || end == n); }
  std::int64_t size(std::int64_t n) const { return (end < 0 ? n : end) - begin; }
  bool operator==(const Range&) const = default;
};

// Of a matrix [rows, columns].
struct WeightSlice {
  Range rows{}, columns{};

  bool is_all(std::int64_t out, std::int64_t in) const {
    return rows.is_all(out) && columns.is_all(in);
  }
};

// These rows and columns of a dense matrix: a view if only rows are taken, else a copy.
Tensor sliced(Context& ctx, const Tensor& matrix, const WeightSlice& slice, Buffer& storage);
// The same for a packed weight in the published layout. Columns that would cut a block are refused;
// `layer` is the name for the message.
PackedWeight sliced(Context& ctx, const std::string& layer, PackedWeight weight,
                    const WeightSlice& slice);

}  // namespace tessera::model
