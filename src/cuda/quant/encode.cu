// Encodes a dense matrix to a packed one. A team of sixteen threads encodes a block of weights with
// the same functions of src/quant as the CPU, and gets the same bits: their sums have sixteen
// lanes, folded 8 on 8, 4 on 4, 2 on 2, 1 on 1, and here each lane is a thread.
//
//   block   | 0 | 1 | ... | 15 | 16 | 17 | ...     lane i % 16 adds up element i
//   thread    0   1         15    0    1
//
// (The build forbids fused multiply-adds in this file, as it does in src/quant.)
#include "cuda/quant/encode.h"

#include "core/rows.h"
#include "core/type_switch.h"
#include "cuda/runtime/launch.h"
#include "cuda/tile/block_reduce.cuh"
#include "cuda/tile/element.cuh"
#include "quant/fp8.h"
#include "quant/int4.h"
#include "quant/int8.h"
#include "quant/mxfp4.h"
#include "quant/nf4.h"
#include "quant/nvfp4.h"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTeam = static_cast<int>(quant::kLanes);
constexpr int kTeams = kThreads / kTeam;
constexpr std::uint32_t kInfinityBits = 0x7f800000u;

// ---- the first pass -----------------------------------------------------------------------------

// Magnitudes compare like their bits, with infinity and NaN above all numbers. The largest and the
// smallest do not depend on the order of the threads.
template <typename T>
__global__ void __launch_bounds__(kThreads) find_extremes(Rows dense, ScanResult* result) {
  std::uint32_t largest = 0;
  for (std::int64_t row = blockIdx.x; row < dense.rows(); row += gridDim.x) {
    const T* x = dense.row<const T>(row);
#pragma unroll 4  // so that several loads are in flight
    for (std::int64_t i = threadIdx.x; i < dense.cols(); i += kThreads) {
      const std::uint32_t bits = __float_as_uint(to_f32(x[i])) & 0x7fffffffu;
      largest = bits > largest ? bits : largest;
      if (bits >= kInfinityBits) {
        atomicMin(&result->not_finite, static_cast<unsigned long long>(row * dense.cols() + i));
      }
    }
  }
  largest = __reduce_max_sync(0xffffffffu, largest);
  if (threadIdx.x % kWarp == 0) atomicMax(&result->largest_bits, largest);
}

// ---- a block's values in the hands of a team ----------------------------------------------------

struct Team {
  int lane;
  unsigned mask;  // of its threads in their warp

  __device__ static Team mine() {
    const unsigned in_warp = threadIdx.x % kWarp;
    return {static_cast<int>(in_warp % kTeam), 0xffffu << (in_warp / kTeam * kTeam)};
  }
  __device__ int first_lane() const { return mask == 0xffffu ? 0 : kTeam; }
};

// The values of a block: in registers if it has at most 16 * kHeld of them, else in memory (kHeld
// is 0).
template <typename T, int kHeld>
struct TeamValues {
  Team team;
  const T* from;
  int count;
  float held[kHeld == 0 ? 1 : kHeld] = {};

  __device__ TeamValues(Team of, const T* values, int size) : team(of), from(values), count(size) {
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      if (at(j) < count) held[j] = to_f32(from[at(j)]);
    }
  }
  // The index of the thread's j-th value.
  __device__ int at(int j) const { return j * kTeam + team.lane; }

  // Calls fn(index, value) for the thread's own values.
  template <typename F>
  __device__ void for_each(F&& fn) const {
    if constexpr (kHeld > 0) {
#pragma unroll
      for (int j = 0; j < kHeld; ++j) {
        if (at(j) < count) fn(at(j), held[j]);
      }
    } else {
#pragma unroll 4
      for (int i = team.lane; i < count; i += kTeam) fn(i, to_f32(from[i]));
    }
  }
};

// Returns what quant::fold() returns for a std::span, to every thread of the team.
template <typename T, int kHeld, typename Term, typename Combine>
__device__ float fold(const TeamValues<T, kHeld>& x, Term term, Combine combine) {
  float sum = 0;
  x.for_each([&](int, float value) { sum = combine(sum, term(value)); });
#pragma unroll
  for (int distance = kTeam / 2; distance > 0; distance /= 2) {
    sum = combine(sum, __shfl_xor_sync(x.team.mask, sum, distance));
  }
  return __shfl_sync(x.team.mask, sum, x.team.first_lane());
}

// ---- formats: the scale of a block, and then a code for each value ------------------------------

// Two 4-bit codes to a byte, the first in its low or its high half; or a byte for each code.
enum class CodeLayout { low_first, high_first, bytes };

// A block of the weight.
struct Place {
  std::int64_t row, block;

  template <typename T>
  __device__ T& in(const Tensor& tensor) const {
    return quant::row_of<T>(tensor, row)[block];
  }
};

struct Nvfp4Codec {
  static constexpr CodeLayout kLayout = CodeLayout::low_first;
  float scale;

  template <typename Values>
  __device__ Nvfp4Codec(const Weight& weight, const Place& place, const Values& x,
                        ScaleSearch search) {
    const std::uint8_t found = quant::nvfp4_scale(x, weight.tensor_scale, search);
    if (x.team.lane == 0) place.in<std::uint8_t>(weight.scales) = found;
    scale = e4m3_decode(found) * weight.tensor_scale;
  }
  __device__ std::uint8_t operator()(float x) const { return e2m1_encode(x / scale); }
};

struct Mxfp4Codec {
  static constexpr CodeLayout kLayout = CodeLayout::low_first;
  float scale;

  template <typename Values>
  __device__ Mxfp4Codec(const Weight& weight, const Place& place, const Values& x,
                        ScaleSearch search) {
    const std::uint8_t found = quant::mxfp4_scale(x, search);
    if (x.team.lane == 0) place.in<std::uint8_t>(weight.scales) = found;
    scale = e8m0_decode(found);
  }
  __device__ std::uint8_t operator()(float x) const { return e2m1_encode(x / scale); }
};

struct Nf4Codec {
  static constexpr CodeLayout kLayout = CodeLayout::high_first;
  float scale;

  template <typename Values>
  __device__ Nf4Codec(const Weight& weight, const Place& place, const Values& x,
                      ScaleSearch search) {
    scale = quant::nf4_scale(x, search);
    if (x.team.lane == 0) place.in<float>(weight.scales) = scale;
  }
  __device__ std::uint8_t operator()(float x) const { return nf4_encode(x / scale); }
};

struct Int4Codec {
  static constexpr CodeLayout kLayout = CodeLayout::low_first;
  float scale, zero;

  template <typename Values>
  __device__ Int4Codec(const Weight& weight, const Place& place, const Values& x,
                       ScaleSearch search) {
    const bool zero_point = weight.zeros.data != nullptr;
    const quant::Int4Scale found =
        zero_point ? quant::int4_scale_and_zero(x, search) : quant::int4_scale(x, search);
    if (x.team.lane == 0) {
      place.in<BFloat16>(weight.scales) = found.scale;
      if (zero_point) place.in<std::uint8_t>(weight.zeros) = found.zero;
    }
    scale = to_float(found.scale);
    zero = found.zero;
  }
  __device__ std::uint8_t operator()(float x) const {
    return static_cast<std::uint8_t>(quant::int4_nearest(x / scale, zero));
  }
};

struct Int8Codec {
  static constexpr CodeLayout kLayout = CodeLayout::bytes;
  float scale;

  template <typename Values>
  __device__ Int8Codec(const Weight& weight, const Place& place, const Values& x,
                       ScaleSearch search) {
    scale = quant::int8_scale(x, search);
    if (x.team.lane == 0) place.in<float>(weight.scales) = scale;
  }
  __device__ std::uint8_t operator()(float x) const {
    return static_cast<std::uint8_t>(static_cast<std::int8_t>(quant::int8_nearest(x / scale)));
  }
};

struct Fp8Codec {
  static constexpr CodeLayout kLayout = CodeLayout::bytes;
  float scale;

  template <typename Values>
  __device__ Fp8Codec(const Weight& weight, const Place& place, const Values& x,
                      ScaleSearch search) {
    scale = quant::fp8_scale(x, search);
    if (x.team.lane == 0) place.in<float>(weight.scales) = scale;
  }
  __device__ std::uint8_t operator()(float x) const { return e4m3_encode(x / scale); }
};

// ---- the second pass ----------------------------------------------------------------------------

// `codes` are the row's bytes; the block begins at code `begin`, which is even. Two threads have
// the 4-bit codes of a byte; the even one, which has the first code, writes the byte.
template <typename Codec, typename T, int kHeld>
__device__ void write_codes(const Codec& codec, const TeamValues<T, kHeld>& x, std::uint8_t* codes,
                            std::int64_t begin) {
  if constexpr (Codec::kLayout == CodeLayout::bytes) {
    x.for_each([&](int i, float value) { codes[begin + i] = codec(value); });
  } else {
    constexpr bool kHighFirst = Codec::kLayout == CodeLayout::high_first;
    const int rounds = (x.count + kTeam - 1) / kTeam;  // all threads take part in each shuffle
    const auto write = [&](int i, bool given, float value) {
      const unsigned mine = given ? codec(value) : 0u;
      const unsigned next = __shfl_xor_sync(x.team.mask, mine, 1);
      if (!given || x.team.lane % 2 != 0) return;
      codes[(begin + i) / 2] =
          static_cast<std::uint8_t>(kHighFirst ? mine << 4 | next : mine | next << 4);
    };
    if constexpr (kHeld > 0) {
#pragma unroll
      for (int j = 0; j < kHeld; ++j) {
        if (j < rounds) write(x.at(j), x.at(j) < x.count, x.held[j]);
      }
    } else {
      for (int j = 0; j < rounds; ++j) {
        const int i = x.at(j);
        write(i, i < x.count, i < x.count ? to_f32(x.from[i]) : 0.f);
      }
    }
  }
}

// Several teams divide a row with many blocks; rows with few blocks divide the threads of a thread
// block.
template <typename Codec, typename T, int kHeld>
__global__ void __launch_bounds__(kThreads)
    encode_rows(Rows dense, Weight weight, ScaleSearch search, int teams_of_row) {
  const Team team = Team::mine();
  const int team_index = static_cast<int>(threadIdx.x) / kTeam;
  const int rows_at_once = kTeams / teams_of_row;
  const std::int64_t columns = weight.in_features, blocks = weight.scales.shape[1];
  const std::int64_t group = weight.group == 0 ? columns : weight.group;
  for (std::int64_t first = std::int64_t{blockIdx.x} * rows_at_once; first < dense.rows();
       first += std::int64_t{gridDim.x} * rows_at_once) {
    const std::int64_t row = first + team_index / teams_of_row;
    if (row >= dense.rows()) return;
    const T* x = dense.row<const T>(row);
    auto* codes = quant::row_of<std::uint8_t>(weight.data, row);
    for (std::int64_t block = team_index % teams_of_row; block < blocks; block += teams_of_row) {
      const std::int64_t begin = block * group;
      const std::int64_t end = columns - begin < group ? columns : begin + group;
      const TeamValues<T, kHeld> values(team, x + begin, static_cast<int>(end - begin));
      const Codec codec(weight, {row, block}, values, search);
      write_codes(codec, values, codes, begin);
    }
  }
}

template <typename Codec, int kHeld>
void launch_encode(Context& ctx, const Tensor& dense, const Weight& weight, ScaleSearch search) {
  const Rows rows(dense);
  int teams_of_row = 1;
  while (teams_of_row < kTeams && teams_of_row < weight.scales.shape[1]) teams_of_row *= 2;
  const std::int64_t rows_at_once = kTeams / teams_of_row;
  const Launch launch(ctx, "quantize");
  with_float_type(dense.dtype, [&](auto type) {
    launch(encode_rows<Codec, decltype(type), kHeld>,
           {.blocks = (rows.rows() + rows_at_once - 1) / rows_at_once, .threads = kThreads}, rows,
           weight, search, teams_of_row);
  });
}

}  // namespace

void scan_elements(Context& ctx, const Tensor& dense, ScanResult* result) {
  const Rows rows(dense);
  // As many blocks as a large GPU runs at once, because each ends with an atomic operation.
  constexpr std::int64_t kBlocks = 2048;
  const Launch launch(ctx, "quantize");
  with_float_type(dense.dtype, [&](auto type) {
    launch(find_extremes<decltype(type)>,
           {.blocks = rows.rows() < kBlocks ? rows.rows() : kBlocks, .threads = kThreads}, rows,
           result);
  });
}

void encode_blocks(Context& ctx, const Tensor& dense, const Weight& weight, ScaleSearch search) {
  constexpr int kLargestHeld = 8;  // groups of 128
  const bool small = weight.group > 0 && weight.group <= kLargestHeld * kTeam;
  switch (weight.format) {
    case Format::dense:
      return;
    case Format::nvfp4:
      return launch_encode<Nvfp4Codec, 1>(ctx, dense, weight, search);
    case Format::mxfp4:
      return launch_encode<Mxfp4Codec, 2>(ctx, dense, weight, search);
    case Format::nf4:
      return launch_encode<Nf4Codec, 4>(ctx, dense, weight, search);
    case Format::int4:
      if (small) return launch_encode<Int4Codec, kLargestHeld>(ctx, dense, weight, search);
      return launch_encode<Int4Codec, 0>(ctx, dense, weight, search);
    case Format::int8:
      return launch_encode<Int8Codec, 0>(ctx, dense, weight, search);
    case Format::fp8:
      return launch_encode<Fp8Codec, 0>(ctx, dense, weight, search);
  }
}

}  // namespace tessera::cuda
