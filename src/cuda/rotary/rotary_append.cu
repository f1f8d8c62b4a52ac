// Rotates queries, rotates keys into the cache's pages, and copies values into the pages: one
// kernel, each element read and written once.
//
//              query heads        key heads          value heads
//   token t  | q0 | q1 | ...    | k0 | k1 | ...    | v0 | v1 | ...
//            '---- block (t, 0) ----'---- block (t, 1) ----' ...     many tokens: one block each
//
// A block first makes the cosines and sines of its token, once for all heads. Then its threads loop
// over the units of its heads. Where rows are aligned to 16 bytes, a unit is 16 bytes and the 16
// bytes paired with them; else the same with 4 bytes; else one element and its partner. Where rows
// are aligned but pairs are not (Pythia rotates 10 pairs of heads of 80), and the result does not
// go in place, units are 16 bytes too: a unit then reads the partners of its elements one by one.
// Into 8-bit pages, a warp writes a head: one pass for its scale, one for its codes.
#include "cuda/rotary/rotary_append.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/host_device.h"
#include "core/type_switch.h"
#include "cuda/rotary/rope.cuh"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/state.h"
#include "cuda/tile/codes.cuh"
#include "cuda/tile/grid_dependency.cuh"
#include "cuda/tile/piece.cuh"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTablePairs = 512;  // heads of up to 1024; later pairs are computed in each use

// One of q, k and v, and its destination.
struct Part {
  const void* from;
  std::int64_t token_stride, head_stride;
  void* to;
  std::int64_t to_head_stride;
  // Strides of a token's place: with pages, of slot / page_size and slot % page_size; else of token
  // and 0.
  std::int64_t to_strides[2];
  int heads;
  int pairs;                      // to be rotated; 0: it is copied
  int unit_bytes;                 // 16 or 4; 0: an element
  bool by_vectors;                // of 16 bytes, however pairs are aligned; unit_bytes is then 16
  bool in_place;                  // only the pairs are written
  float* scales;                  // of pages of 8 bits; null: none
  std::int64_t scale_strides[2];  // of a page and of a head

  // Of one head.
  TESSERA_HOST_DEVICE int units(int dim, int element_bytes) const {
    const int size = unit_bytes == 0 ? 1 : unit_bytes / element_bytes;
    if (by_vectors) return dim / size;
    return (in_place ? pairs : dim - pairs) / size;
  }
};

struct AppendCall {
  Part parts[3];  // q, k, v
  std::int64_t tokens, slots_of_pool;
  std::uint32_t page_size;  // a slot has 31 bits
  int dim, heads_of_block, blocks_of_token;
  const float* inv_freq;
  int pairs;
  const void* positions;
  DType position_dtype;
  const std::int32_t* slots;
  bool half_split;
  DType stored;  // of the pages
};

// The rotations of one token: from the table, as far as it goes.
struct Rotations {
  const CosSin* table;
  const float* inv_freq;
  std::int64_t position;
  __device__ CosSin operator[](int pair) const {
    return pair < kTablePairs ? table[pair] : cos_sin(position, inv_freq[pair]);
  }
};

template <typename T>
struct Head {
  const T* from;
  T* to;
};

// Moves unit u of a head in pieces: pairs (i, i + pairs) of half-split heads first, then the rest.
template <int kBytes, typename T>
__device__ void move_piece(Head<T> head, int unit, int pairs, const CosSin* table) {
  using Unit = Piece<T, kBytes>;
  constexpr int kSize = Unit::kSize;
  const int rotated_units = pairs / kSize;
  if (unit >= rotated_units) {
    const int at = (unit + rotated_units) * kSize;
    store_piece(head.to + at, load_piece<kBytes>(head.from + at));
    return;
  }
  const int at = unit * kSize;
  const Unit first = load_piece<kBytes>(head.from + at);
  const Unit second = load_piece<kBytes>(head.from + at + pairs);
  RotatedPair out[kSize];
#pragma unroll
  for (int i = 0; i < kSize; ++i) out[i] = rotated(first[i], second[i], table[at + i]);
  Unit piece;
  piece.set([&](int i) { return out[i].first; });
  store_piece(head.to + at, piece);
  piece.set([&](int i) { return out[i].second; });
  store_piece(head.to + at + pairs, piece);
}

// Moves unit u of a head in elements.
template <typename T>
__device__ void move_element(Head<T> head, int unit, int pairs, bool half_split,
                             const Rotations& rotations) {
  if (unit >= pairs) {
    head.to[unit + pairs] = head.from[unit + pairs];
    return;
  }
  const int first = half_split ? unit : 2 * unit, second = half_split ? unit + pairs : 2 * unit + 1;
  const RotatedPair pair =
      rotated(to_f32(head.from[first]), to_f32(head.from[second]), rotations[unit]);
  head.to[first] = from_f32<T>(pair.first);
  head.to[second] = from_f32<T>(pair.second);
}

// Element d of a head, rotated and rounded to T.
template <typename T>
__device__ float rotated_element(const T* head, int d, int pairs, bool half_split,
                                 const Rotations& rotations) {
  if (d >= 2 * pairs) return to_f32(head[d]);
  const int pair = !half_split ? d / 2 : d < pairs ? d : d - pairs;
  const int first = half_split ? pair : 2 * pair, second = half_split ? pair + pairs : 2 * pair + 1;
  const RotatedPair out = rotated(to_f32(head[first]), to_f32(head[second]), rotations[pair]);
  return to_f32(from_f32<T>(d == first ? out.first : out.second));
}

// Moves unit u of a head in vectors. Not in place: other threads read the elements of this one.
template <typename T>
__device__ void move_vector(Head<T> head, int unit, int pairs, bool half_split,
                            const Rotations& rotations) {
  using Unit = Piece<T, kPieceBytes>;
  const int at = unit * Unit::kSize;
  Unit piece = load_piece<kPieceBytes>(head.from + at);
  if (at < 2 * pairs) {
    piece.set(
        [&](int i) { return rotated_element(head.from, at + i, pairs, half_split, rotations); });
  }
  store_piece(head.to + at, piece);
}

// Moves heads [begin, end) of one part.
template <typename T>
__device__ void move_heads(const AppendCall& call, const Part& part, std::int64_t token,
                           std::int64_t place, std::int64_t place_row, int begin, int end,
                           const Rotations& rotations) {
  const T* from = static_cast<const T*>(part.from) + token * part.token_stride;
  T* to = static_cast<T*>(part.to) + place * part.to_strides[0] + place_row * part.to_strides[1];
  const int units = part.units(call.dim, static_cast<int>(sizeof(T)));
  for (int i = static_cast<int>(threadIdx.x); i < (end - begin) * units; i += kThreads) {
    const int h = begin + i / units, unit = i % units;
    const Head<T> head{from + h * part.head_stride, to + h * part.to_head_stride};
    if (part.by_vectors) {
      move_vector(head, unit, part.pairs, call.half_split, rotations);
    } else if (part.unit_bytes == 16) {
      move_piece<16>(head, unit, part.pairs, rotations.table);
    } else if (part.unit_bytes == 4) {
      move_piece<4>(head, unit, part.pairs, rotations.table);
    } else {
      move_element(head, unit, part.pairs, call.half_split, rotations);
    }
  }
}

// Writes heads [begin, end) of keys or values as codes.
template <typename T>
__device__ void encode_heads(const AppendCall& call, const Part& part, std::int64_t token,
                             std::int64_t page, std::int64_t row, int begin, int end,
                             const Rotations& rotations) {
  const T* from = static_cast<const T*>(part.from) + token * part.token_stride;
  auto* to =
      static_cast<std::uint8_t*>(part.to) + page * part.to_strides[0] + row * part.to_strides[1];
  float* scales = part.scales + page * part.scale_strides[0] + row;
  for (int h = begin + static_cast<int>(threadIdx.x) / kWarp; h < end; h += kThreads / kWarp) {
    const T* head = from + h * part.head_stride;
    encode_row(
        call.dim, call.stored,
        [&](int d) { return rotated_element(head, d, part.pairs, call.half_split, rotations); },
        to + h * part.to_head_stride, scales + h * part.scale_strides[1]);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) append_rotated(AppendCall call) {
  __shared__ CosSin table[kTablePairs];
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const std::int64_t blocks = call.tokens * call.blocks_of_token;
  for (std::int64_t b = blockIdx.x; b < blocks; b += gridDim.x) {
    // A 32-bit division takes a quarter of the instructions of a 64-bit one. If a token has several
    // blocks, block numbers fit 32 bits.
    const auto narrow = static_cast<std::uint32_t>(b);
    const auto of_token = static_cast<std::uint32_t>(call.blocks_of_token);
    const std::int64_t token = of_token == 1 ? b : narrow / of_token;
    const int first = of_token == 1 ? 0 : static_cast<int>(narrow % of_token) * call.heads_of_block;
    const std::int64_t position = index_at(call.positions, call.position_dtype, token);
    const std::int64_t slot = call.slots[token];
    const bool has_slot = slot >= 0 && slot < call.slots_of_pool;
    // Blocks with only values rotate nothing.
    const bool rotates_some =
        first < call.parts[0].heads + (call.parts[1].pairs > 0 ? call.parts[1].heads : 0);
    const int entries = !rotates_some ? 0 : call.pairs < kTablePairs ? call.pairs : kTablePairs;
    for (int pair = static_cast<int>(threadIdx.x); pair < entries; pair += kThreads) {
      table[pair] = cos_sin(position, call.inv_freq[pair]);
    }
    __syncthreads();
    const Rotations rotations{table, call.inv_freq, position};
    int before = 0;  // heads of the parts before
    for (int p = 0; p < 3; ++p) {
      const Part& part = call.parts[p];
      const int begin = std::max(first - before, 0);
      const int end = std::min(first + call.heads_of_block - before, part.heads);
      before += part.heads;
      if (begin >= end || (p > 0 && !has_slot)) continue;
      const auto narrow_slot = static_cast<std::uint32_t>(slot);
      const std::int64_t place = p == 0 ? token : narrow_slot / call.page_size;
      const std::int64_t row = p == 0 ? 0 : narrow_slot % call.page_size;
      if (part.scales != nullptr) {
        encode_heads<T>(call, part, token, place, row, begin, end, rotations);
      } else {
        move_heads<T>(call, part, token, place, row, begin, end, rotations);
      }
    }
    __syncthreads();  // the table is free
  }
}

// ---- the launch ---------------------------------------------------------------------------------

// The largest unit that heads and halves are multiples of, and that all rows are aligned to.
int unit_bytes_of(const Tensor& from, const Tensor& to, std::int64_t pairs, bool half_split) {
  if (pairs > kTablePairs || (pairs > 0 && !half_split)) return 0;
  for (const int bytes : {kPieceBytes, 4}) {
    const std::int64_t size = bytes / size_of(from.dtype);
    const bool whole = from.shape[2] % size == 0 && pairs % size == 0;
    if (whole && rows_on_pieces(from, bytes) && rows_on_pieces(to, bytes)) return bytes;
  }
  return 0;
}

// Whether rows that do not stay in place can be moved in vectors.
bool has_vectors(const Tensor& from, const Tensor& to) {
  return from.shape[2] % (kPieceBytes / size_of(from.dtype)) == 0 &&
         rows_on_pieces(from, kPieceBytes) && rows_on_pieces(to, kPieceBytes);
}

// `to` is like `from`, or a pool of pages, which may have scales.
Part make_part(const Tensor& from, const Tensor& to, const Tensor& scales, std::int64_t pairs,
               bool half_split) {
  const bool paged = to.rank == 4, in_place = from.data == to.data;
  const int unit_bytes = unit_bytes_of(from, to, pairs, half_split);
  const bool by_vectors = unit_bytes < kPieceBytes && !in_place && has_vectors(from, to);
  return {.from = from.data,
          .token_stride = from.strides[0],
          .head_stride = from.strides[1],
          .to = to.data,
          .to_head_stride = to.strides[to.rank - 2],
          .to_strides = {to.strides[0], paged ? to.strides[1] : 0},
          .heads = static_cast<int>(from.shape[1]),
          .pairs = static_cast<int>(pairs),
          .unit_bytes = by_vectors ? kPieceBytes : unit_bytes,
          .by_vectors = by_vectors,
          .in_place = in_place,
          .scales = scales.ptr<float>(),
          .scale_strides = {scales.strides[0], scales.strides[1]}};
}

}  // namespace

void rotary_append(Context& ctx, const RotaryAppendArgs& args) {
  const std::int64_t tokens = args.q.shape[0], pairs = args.rope.inv_freq.shape[0];
  const std::int64_t heads = args.q.shape[1] + 2 * args.k.shape[1];
  if (tokens == 0 || heads == 0 || args.q.shape[2] == 0) return;
  const bool half_split = args.rope.style == RopeStyle::half_split;
  const std::int64_t key_pairs = args.rotate_keys ? pairs : 0;
  const Part parts[] = {make_part(args.q, args.q_out, {}, pairs, half_split),
                        make_part(args.k, args.k_pages, args.k_scales, key_pairs, half_split),
                        make_part(args.v, args.v_pages, args.v_scales, 0, half_split)};
  const auto dim = static_cast<int>(args.q.shape[2]);
  std::int64_t units = 0;
  for (const Part& part : parts) {
    units += std::int64_t{part.heads} * part.units(dim, size_of(args.q.dtype));
  }
  // Four units for each thread, and at least as many blocks as keep a large GPU busy; each has at
  // least one head. If that would give more than 2^31 blocks, each token has one.
  constexpr std::int64_t kManyBlocks = 264, kUnits = 4 * kThreads;
  const std::int64_t wanted = std::max((units + kUnits - 1) / kUnits, kManyBlocks / tokens);
  const bool narrow = tokens <= std::numeric_limits<std::int32_t>::max() / heads;
  const std::int64_t blocks_of_token = narrow ? std::clamp<std::int64_t>(wanted, 1, heads) : 1;
  const std::int64_t heads_of_block = (heads + blocks_of_token - 1) / blocks_of_token;
  const AppendCall call{
      .parts = {parts[0], parts[1], parts[2]},
      .tokens = tokens,
      .slots_of_pool = args.k_pages.shape[0] * args.k_pages.shape[1],
      .page_size = static_cast<std::uint32_t>(
          std::min<std::int64_t>(args.k_pages.shape[1], std::numeric_limits<std::uint32_t>::max())),
      .dim = dim,
      .heads_of_block = static_cast<int>(heads_of_block),
      .blocks_of_token = static_cast<int>((heads + heads_of_block - 1) / heads_of_block),
      .inv_freq = args.rope.inv_freq.ptr<const float>(),
      .pairs = static_cast<int>(pairs),
      .positions = args.positions.data,
      .position_dtype = args.positions.dtype,
      .slots = args.slots.ptr<const std::int32_t>(),
      .half_split = half_split,
      .stored = args.k_pages.dtype};
  const Launch launch(ctx, "rotary_append");
  with_float_type(args.q.dtype, [&](auto type) {
    launch(append_rotated<decltype(type)>,
           {.blocks = tokens * call.blocks_of_token,
            .threads = kThreads,
            .overlaps = state_of(ctx).limits().capability >= 90},
           call);
  });
}

}  // namespace tessera::cuda
