#include "cpu/linear/weight_tiles.h"

#include <algorithm>
#include <cstring>

#include "core/checked.h"
#include "core/thread_pool.h"

namespace tessera::cpu {
namespace {

// The code of weight k of a published row.
std::uint8_t published_code(Format format, const std::uint8_t* row, std::int64_t k) {
  if (format == Format::int8) return row[k];
  // nf4 is the only format that stores the high half first.
  const bool high = (k % 2 == 1) != (format == Format::nf4);
  return high ? row[k / 2] >> 4 : row[k / 2] & 15;
}

// Interleaves sixteen rows: out[block][row] = row[block]. T is as wide as an element.
template <typename T>
void interleave(const Tensor& from, const Tensor& to, std::int64_t tile) {
  const std::int64_t first = tile * kWeightTileN;
  const std::int64_t rows = std::min(kWeightTileN, from.shape[0] - first);
  T* out = to.ptr<T>() + tile * to.strides[0];
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* row = from.ptr<const T>() + (first + r) * from.strides[0];
    for (std::int64_t block = 0; block < from.shape[1]; ++block) {
      out[block * kWeightTileN + r] = row[block];
    }
  }
}

void interleave_scales(const Tensor& from, const Tensor& to, std::int64_t tile) {
  switch (size_of(from.dtype)) {
    case 1:
      return interleave<std::uint8_t>(from, to, tile);
    case 2:
      return interleave<std::uint16_t>(from, to, tile);
    default:
      return interleave<std::uint32_t>(from, to, tile);
  }
}

void interleave_codes(const Weight& published, const Weight& tiled, std::int64_t tile) {
  const Format format = published.format;
  const std::int64_t first = tile * kWeightTileN;
  const std::int64_t rows = std::min(kWeightTileN, published.out_features - first);
  std::uint8_t* out = tiled.data.ptr<std::uint8_t>() + tile * tiled.data.strides[0];
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::uint8_t* row =
        published.data.ptr<const std::uint8_t>() + (first + r) * published.data.strides[0];
    for (std::int64_t k = 0; k < published.in_features; ++k) {
      const std::uint8_t code = published_code(format, row, k);
      if (format == Format::int8) {
        out[k / 4 * kStepBytes + 4 * r + k % 4] = code;
      } else {
        const int shift = k % 8 < 4 ? 0 : 4;
        out[k / 8 * kStepBytes + 4 * r + k % 4] |= static_cast<std::uint8_t>(code << shift);
      }
    }
  }
}

// One row of what interleave() made.
template <typename T>
void gather(const Tensor& from, std::int64_t row, const Tensor& to) {
  const T* tile = from.ptr<const T>() + row / kWeightTileN * from.strides[0] + row % kWeightTileN;
  T* out = to.ptr<T>();
  for (std::int64_t block = 0; block < to.shape[1]; ++block)
    out[block] = tile[block * kWeightTileN];
}

void gather_scales(const Tensor& from, std::int64_t row, const Tensor& to) {
  switch (size_of(from.dtype)) {
    case 1:
      return gather<std::uint8_t>(from, row, to);
    case 2:
      return gather<std::uint16_t>(from, row, to);
    default:
      return gather<std::uint32_t>(from, row, to);
  }
}

// The code of weight k in a tile whose codes of this row begin at `row`.
std::uint8_t tiled_code(Format format, const std::uint8_t* row, std::int64_t k) {
  if (format == Format::int8) return row[k / 4 * kStepBytes + k % 4];
  const std::uint8_t pair = row[k / 8 * kStepBytes + k % 4];
  return k % 8 < 4 ? pair & 15 : pair >> 4;
}

void gather_codes(const Weight& tiled, std::int64_t row, std::uint8_t* out) {
  const Format format = tiled.format;
  const std::uint8_t* from = tiled.data.ptr<const std::uint8_t>() +
                             row / kWeightTileN * tiled.data.strides[0] + 4 * (row % kWeightTileN);
  const std::int64_t n = tiled.in_features;
  if (format == Format::int8) {
    for (std::int64_t k = 0; k < n; ++k) out[k] = tiled_code(format, from, k);
    return;
  }
  for (std::int64_t k = 0; k < n; k += 2) {
    const unsigned first = tiled_code(format, from, k);
    const unsigned second = k + 1 < n ? tiled_code(format, from, k + 1) : 0;
    out[k / 2] = static_cast<std::uint8_t>(format == Format::nf4 ? first << 4 | second
                                                                 : second << 4 | first);
  }
}

}  // namespace

bool has_tiles(Format format, std::int64_t group) {
  switch (format) {
    case Format::nvfp4:
    case Format::mxfp4:
    case Format::nf4:
      return group == info(format).default_group;
    case Format::int4:
    case Format::int8:
      return group >= 0 && group % kBlock == 0;  // 0: the whole row
    default:
      return false;
  }
}

TileSizes tile_sizes(Format format, std::int64_t group, std::int64_t out_features,
                     std::int64_t in_features) {
  const std::int64_t blocks = ceil_div(in_features, kBlock);
  const std::int64_t padded = checked_mul(blocks, kBlock);
  return {.tiles = ceil_div(out_features, kWeightTileN),
          .blocks = blocks,
          .bytes = checked_mul(padded, kWeightTileN * info(format).bits) / 8,
          .scales = group == 0 ? 1 : ceil_div(padded, group)};
}

void write_tiles(Context& ctx, const Weight& published, const Weight& tiled) {
  ctx.pool().parallel_for(tiled.data.shape[0], [&](std::int64_t tile, int) {
    const auto clear = [tile](const Tensor& t) {
      const std::int64_t bytes = t.strides[0] * size_of(t.dtype);
      std::memset(t.ptr<char>() + tile * bytes, 0, static_cast<std::size_t>(bytes));
    };
    clear(tiled.data);
    clear(tiled.scales);
    interleave_codes(published, tiled, tile);
    interleave_scales(published.scales, tiled.scales, tile);
    if (!published.zeros.defined()) return;
    clear(tiled.zeros);
    interleave<std::uint8_t>(published.zeros, tiled.zeros, tile);
  });
}

void read_tile_row(const Weight& tiled, std::int64_t row, const Weight& published) {
  gather_codes(tiled, row, published.data.ptr<std::uint8_t>());
  gather_scales(tiled.scales, row, published.scales);
  if (published.zeros.defined()) gather<std::uint8_t>(tiled.zeros, row, published.zeros);
}

Tile tile_of(const Weight& weight, std::int64_t tile) {
  const auto start = [tile](const Tensor& t) {
    return t.ptr<const std::uint8_t>() + tile * t.strides[0] * size_of(t.dtype);
  };
  const std::int64_t blocks = ceil_div(weight.in_features, kBlock);
  return {.codes = start(weight.data),
          .scales = start(weight.scales),
          .scale_dtype = weight.scales.dtype,
          .zeros = weight.zeros.defined() ? start(weight.zeros) : nullptr,
          .blocks = blocks,
          .blocks_per_scale = weight.group == 0 ? std::max<std::int64_t>(blocks, 1)
                                                : std::max<std::int64_t>(weight.group / kBlock, 1)};
}

}  // namespace tessera::cpu
