// One thread for each word of codes, each scale, each row. Runs once for a weight, when it is
// loaded.
#include "cuda/linear/layout/repack.h"

#include <cmath>
#include <type_traits>

#include "cuda/linear/layout/tile_layout.h"
#include "cuda/quant/codec.cuh"
#include "cuda/runtime/launch.h"
#include "quant/codec.h"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;

__device__ std::int64_t first_item() { return std::int64_t{blockIdx.x} * kThreads + threadIdx.x; }
__device__ std::int64_t item_step() { return std::int64_t{gridDim.x} * kThreads; }
constexpr std::int64_t blocks_for(std::int64_t items) { return (items + kThreads - 1) / kThreads; }

// ---- codes --------------------------------------------------------------------------------------

struct Sizes {
  std::int64_t n, k, tiles, slabs;
};

__device__ unsigned published_code(const Bytes& codes, bool high, std::int64_t row,
                                   std::int64_t k) {
  return high ? high_first(codes, row, k) : low_first(codes, row, k);
}

// Packs eight neighbours of a row at a time.
__global__ void pack_words(Bytes codes, bool high, WordOrder order, Sizes sizes,
                           std::uint32_t* words) {
  const std::int64_t eighths = sizes.slabs * (kSlab / 8);
  for (std::int64_t i = first_item(); i < sizes.tiles * kTileHeight * eighths; i += item_step()) {
    const std::int64_t row = i / eighths, k = i % eighths * 8;
    std::uint32_t word = 0;
    for (int e = 0; e < 8; ++e) {
      if (row >= sizes.n || k + e >= sizes.k) break;
      word |= place_code(order, published_code(codes, high, row, k + e), e);
    }
    words[tile_word(row, k, sizes.slabs)] = word;
  }
}
__global__ void unpack_words(const std::uint32_t* words, bool high, WordOrder order, Sizes sizes,
                             std::uint8_t* codes) {
  const std::int64_t row_bytes = (sizes.k + 1) / 2;
  for (std::int64_t i = first_item(); i < sizes.n * row_bytes; i += item_step()) {
    const std::int64_t row = i / row_bytes, k = i % row_bytes * 2;
    const std::uint32_t word = words[tile_word(row, k, sizes.slabs)];
    const int element = static_cast<int>(k % 8);
    const std::uint32_t first = code_at(order, word, element);
    const std::uint32_t second = code_at(order, word, element + 1);  // zero beyond the row
    codes[i] = static_cast<std::uint8_t>(high ? first << 4 | second : second << 4 | first);
  }
}

// `flip` is XORed with every code: int8 is stored with 128 added.
__global__ void pack_bytes(Bytes codes, std::uint8_t flip, Sizes sizes, std::uint8_t* bytes) {
  const std::int64_t depth = sizes.slabs * kSlab;
  for (std::int64_t i = first_item(); i < sizes.tiles * kTileHeight * depth; i += item_step()) {
    const std::int64_t row = i / depth, k = i % depth;
    const bool inside = row < sizes.n && k < sizes.k;
    bytes[tile_byte(row, k, sizes.slabs)] =
        static_cast<std::uint8_t>((inside ? codes.at(row, k) : 0) ^ flip);
  }
}
__global__ void unpack_bytes(const std::uint8_t* bytes, std::uint8_t flip, Sizes sizes,
                             std::uint8_t* codes) {
  for (std::int64_t i = first_item(); i < sizes.n * sizes.k; i += item_step()) {
    const std::int64_t at = tile_byte(i / sizes.k, i % sizes.k, sizes.slabs);
    codes[i] = static_cast<std::uint8_t>(bytes[at] ^ flip);
  }
}

// ---- scales and zero points ---------------------------------------------------------------------

// From: maps a row and a block to a number of T.
template <typename From, typename T>
__global__ void pack_scales(From scales, std::int64_t rows, std::int64_t row_blocks,
                            std::int64_t tiles, std::int64_t blocks, std::int64_t group, T* to) {
  for (std::int64_t i = first_item(); i < tiles * kTileHeight * blocks; i += item_step()) {
    const std::int64_t row = i / blocks, block = i % blocks;
    const bool inside = row < rows && block < row_blocks;
    to[tile_scale(row, block, blocks, group)] = inside ? scales.at(row, block) : T{};
  }
}
template <typename T>
__global__ void unpack_scales(const T* from, std::int64_t rows, std::int64_t row_blocks,
                              std::int64_t blocks, std::int64_t group, T* to) {
  for (std::int64_t i = first_item(); i < rows * row_blocks; i += item_step()) {
    to[i] = from[tile_scale(i / row_blocks, i % row_blocks, blocks, group)];
  }
}

// ---- scales of rows -----------------------------------------------------------------------------

// The largest power of two that is at most x, as the divisor of block scales; 1 for 0. Its inverse
// is an f32 number too.
__device__ float power_below(float x) {
  if (x == 0.f) return 1.f;
  return ldexpf(1.f, max(-126, min(126, ilogbf(x))));
}

// The scale of a row. If the row has a single scale: that scale. nvfp4: the tensor's scale. Others:
// a power of two by which the row's scales are divided, so that f16 holds the quotients. If a scale
// is not finite or a code is NaN: NaN, which then reaches every sum of the row, as it should. The
// fast decoders have no NaN.
__global__ void make_row_scales(Format format, bool whole_rows, Bytes codes, std::int64_t depth,
                                Bytes bytes, FloatScales scales, std::int64_t blocks,
                                float tensor_scale, std::int64_t rows, std::int64_t padded_rows,
                                float* to) {
  for (std::int64_t row = first_item(); row < padded_rows; row += item_step()) {
    float largest = 0;
    bool finite = true;
    for (std::int64_t b = 0; row < rows && b < blocks; ++b) {
      const float scale = format == Format::nvfp4   ? e4m3_decode(bytes.at(row, b))
                          : format == Format::mxfp4 ? e8m0_decode(bytes.at(row, b))
                                                    : scales.at(row, b);
      finite = finite && isfinite(scale);
      largest = fmaxf(largest, fabsf(scale));
    }
    float result = format == Format::nvfp4 ? tensor_scale : power_below(largest);
    if (whole_rows && row < rows) result = scales.at(row, 0);
    if (format == Format::fp8 && row < rows) {
      for (std::int64_t k = 0; k < depth; ++k) finite = finite && (codes.at(row, k) & 127u) != 127u;
    }
    to[row] = finite ? result : nanf("");
  }
}

// The kernels of linear() read tiles before they wait for earlier kernels in the stream. A kernel
// that overlaps starts when all blocks of the one before have ended, which is before their writes
// are visible. This kernel does not overlap: it starts when they are visible. So every later kernel
// sees them too.
__global__ void settle_tiles() {}

// `tiled` has whole tiles.
Sizes sizes_of(const Weight& tiled) {
  return {tiled.out_features, tiled.in_features, tiled.data.shape[0], 2 * pairs_of(tiled)};
}

std::uint8_t flip_of(Format format) { return format == Format::int8 ? 0x80 : 0; }

}  // namespace

void repack(Context& ctx, const Weight& published, const Weight& tiled) {
  const Sizes sizes = sizes_of(tiled);
  const Format format = published.format;
  const Launch launch(ctx, "repack");
  const std::int64_t items = tiled.data.numel();
  const Bytes codes(published.data);
  if (info(format).bits == 4) {
    launch(pack_words, {.blocks = blocks_for(items / 4), .threads = kThreads}, codes,
           format == Format::nf4, word_order(format), sizes, tiled.data.ptr<std::uint32_t>());
  } else {
    launch(pack_bytes, {.blocks = blocks_for(items), .threads = kThreads}, codes, flip_of(format),
           sizes, tiled.data.ptr<std::uint8_t>());
  }

  const std::int64_t row_blocks = published.scales.shape[1];
  const std::int64_t blocks = tiled.scales.shape[1] / kTileHeight;
  const auto pack = [&](const auto& from, auto* to, std::int64_t count) {
    launch(pack_scales<std::decay_t<decltype(from)>, std::decay_t<decltype(*to)>>,
           {.blocks = blocks_for(count), .threads = kThreads}, from, sizes.n, row_blocks,
           sizes.tiles, blocks, tiled.group, to);
  };
  if (tiled.scales.dtype == DType::f32) {
    pack(FloatScales(published.scales), tiled.scales.ptr<float>(), tiled.scales.numel());
  } else {
    pack(Bytes(published.scales), tiled.scales.ptr<std::uint8_t>(), tiled.scales.numel());
  }
  if (published.zeros.defined()) {
    pack(Bytes(published.zeros), tiled.zeros.ptr<std::uint8_t>(), tiled.zeros.numel());
  }

  launch(make_row_scales, {.blocks = blocks_for(tiled.row_scales.numel()), .threads = kThreads},
         format, published.group == 0, codes, sizes.k, Bytes(published.scales),
         FloatScales(published.scales), row_blocks, published.tensor_scale, sizes.n,
         tiled.row_scales.numel(), tiled.row_scales.ptr<float>());
  launch(settle_tiles, {.blocks = 1, .threads = 1});
}

void unpack(Context& ctx, const Weight& tiled, const Weight& published) {
  const Sizes sizes = sizes_of(tiled);
  const Format format = tiled.format;
  const Launch launch(ctx, "unpack");
  const Grid grid{.blocks = blocks_for(published.data.numel()), .threads = kThreads};
  if (info(format).bits == 4) {
    launch(unpack_words, grid, tiled.data.ptr<const std::uint32_t>(), format == Format::nf4,
           word_order(format), sizes, published.data.ptr<std::uint8_t>());
  } else {
    launch(unpack_bytes, grid, tiled.data.ptr<const std::uint8_t>(), flip_of(format), sizes,
           published.data.ptr<std::uint8_t>());
  }
  const std::int64_t row_blocks = published.scales.shape[1];
  const std::int64_t blocks = tiled.scales.shape[1] / kTileHeight;
  const auto take = [&](const auto* from, auto* to) {
    launch(unpack_scales<std::decay_t<decltype(*to)>>,
           {.blocks = blocks_for(sizes.n * row_blocks), .threads = kThreads}, from, sizes.n,
           row_blocks, blocks, tiled.group, to);
  };
  if (tiled.scales.dtype == DType::f32) {
    take(tiled.scales.ptr<const float>(), published.scales.ptr<float>());
  } else {
    take(tiled.scales.ptr<const std::uint8_t>(), published.scales.ptr<std::uint8_t>());
  }
  if (tiled.zeros.defined()) {
    take(tiled.zeros.ptr<const std::uint8_t>(), published.zeros.ptr<std::uint8_t>());
  }
}

}  // namespace tessera::cuda
