// Rotates queries, rotates keys into the cache's pages, and copies values into the pages: one
// kernel, each element read and written once.
//
//              query heads        key heads          value heads
//   token t  | q0 | q1 | ...    | k0 | k1 | ...    | v0 | v1 | ...
//            '---- block (t, 0) ----'---- block (t, 1) ----' ...     many tokens: one block each
//
// A block makes the cosines and sines of its token once for all heads, which move in one of 4 ways:
//   pieces     Rows and pairs are aligned to 16 bytes (Llama): a thread moves a piece and its pair.
//   vectors    Pairs are not (Pythia rotates 10 pairs of heads of 80): heads are copied into shared
//              memory while the cosines are made, a thread rotates one pair there at a time.
//   elements   Rows are not aligned: one by one.
//   codes      Into 8-bit pages, a warp writes a head: one pass for its scale, one for its codes.
#include "cuda/rotary/rotary_append.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/host_device.h"
#include "core/type_switch.h"
#include "cuda/rotary/rope.cuh"
#include "cuda/runtime/dynamic_shared.cuh"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/state.h"
#include "cuda/tile/codes.cuh"
#include "cuda/tile/cp_async.cuh"
#include "cuda/tile/grid_dependency.cuh"
#include "cuda/tile/piece.cuh"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTablePairs = 512;  // heads of up to 1024; later pairs are computed in each use

enum class Way : std::uint8_t { pieces, vectors, elements, codes };

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
  int pairs;  // to be rotated; 0: it is copied
  Way way;
  bool in_place;                  // only the pairs are written
  float* scales;                  // of pages of 8 bits; null: none
  std::int64_t scale_strides[2];  // of a page and of a head

  // What the threads of a block divide, of each head; 16 bytes have `size` elements.
  TESSERA_HOST_DEVICE int units(int dim, int size) const {
    const int moved = in_place ? pairs : dim - pairs;
    if (way == Way::pieces) return moved / size;
    return way == Way::vectors ? (in_place ? 2 * pairs + size - 1 : dim) / size : moved;
  }
};

struct AppendCall {
  Part parts[3];  // q, k, v
  std::int64_t tokens, slots_of_pool;
  std::uint32_t page_size;  // a slot has 31 bits
  int dim, heads_of_block, blocks_of_token;
  bool any_vectors;
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

// Heads [begin, end) of one part that a block has, and where its first head lies in shared memory.
struct Share {
  const Part& part;
  int begin, end;
  int before;  // heads of the block before them

  // fn(h, i) for the thread's share of `each` items of every head, h from 0 on.
  template <typename F>
  __device__ void for_each(int each, F&& fn) const {
    if (each == 0) return;
    // Two divisions for all items instead of one for each.
    const int count = end - begin, heads = kThreads / each, items = kThreads - heads * each;
    int h = static_cast<int>(threadIdx.x) / each, i = static_cast<int>(threadIdx.x) - h * each;
    while (h < count) {
      fn(h, i);
      h += heads;
      i += items;
      if (i >= each) {
        i -= each;
        ++h;
      }
    }
  }
};

// The two elements of a pair.
struct PairPlaces {
  int first, second;
  __device__ PairPlaces(int pair, int pairs, bool half_split)
      : first(half_split ? pair : 2 * pair), second(half_split ? pair + pairs : 2 * pair + 1) {}
};

// Rotates a pair of elements, which may be in place.
template <typename T>
__device__ void rotate_pair(const T* from, T* to, PairPlaces at, CosSin rotation) {
  const RotatedPair pair = rotated(to_f32(from[at.first]), to_f32(from[at.second]), rotation);
  to[at.first] = from_f32<T>(pair.first);
  to[at.second] = from_f32<T>(pair.second);
}

// The heads of a block in shared memory.
template <typename T>
struct HeadCopies {
  static constexpr int kSize = Piece<T>::kSize;
  const AppendCall& call;
  T* const heads;

  __device__ T* head(const Share& share, int h) const {
    return heads + (share.before + h) * call.dim;
  }
  __device__ void fetch(const Share& share, std::int64_t token) const {
    const Part& part = share.part;
    const T* from = static_cast<const T*>(part.from) + token * part.token_stride;
    share.for_each(part.units(call.dim, kSize), [&](int h, int i) {
      copy_async(head(share, h) + i * kSize,
                 from + (share.begin + h) * part.head_stride + i * kSize, true);
    });
  }
  __device__ void rotate(const Share& share, const Rotations& rotations) const {
    const int pairs = share.part.pairs;
    if (pairs == 0) return;
    share.for_each(pairs, [&](int h, int pair) {
      T* const own = head(share, h);
      rotate_pair(own, own, PairPlaces(pair, pairs, call.half_split), rotations[pair]);
    });
  }
  __device__ void store(const Share& share, std::int64_t place, std::int64_t row) const {
    const Part& part = share.part;
    T* to = static_cast<T*>(part.to) + place * part.to_strides[0] + row * part.to_strides[1];
    share.for_each(part.units(call.dim, kSize), [&](int h, int i) {
      store_piece(to + (share.begin + h) * part.to_head_stride + i * kSize,
                  load_piece(head(share, h) + i * kSize));
    });
  }
};

// Moves the heads in pieces: pairs (i, i + pairs) first, then the rest.
template <typename T>
__device__ void move_pieces(const AppendCall& call, const Share& share, std::int64_t token,
                            std::int64_t place, std::int64_t row, const CosSin* table) {
  using Unit = Piece<T>;
  constexpr int kSize = Unit::kSize;
  const Part& part = share.part;
  const int pairs = part.pairs;
  const T* from = static_cast<const T*>(part.from) + token * part.token_stride;
  T* to = static_cast<T*>(part.to) + place * part.to_strides[0] + row * part.to_strides[1];
  share.for_each(part.units(call.dim, kSize), [&](int h, int i) {
    const T* const head = from + (share.begin + h) * part.head_stride;
    T* const head_to = to + (share.begin + h) * part.to_head_stride;
    const int at = i * kSize;
    if (at >= pairs) {
      store_piece(head_to + at + pairs, load_piece(head + at + pairs));
      return;
    }
    const Unit first = load_piece(head + at), second = load_piece(head + at + pairs);
    RotatedPair out[kSize];
#pragma unroll
    for (int j = 0; j < kSize; ++j) out[j] = rotated(first[j], second[j], table[at + j]);
    Unit piece;
    piece.set([&](int j) { return out[j].first; });
    store_piece(head_to + at, piece);
    piece.set([&](int j) { return out[j].second; });
    store_piece(head_to + at + pairs, piece);
  });
}

// Moves the heads element by element. In place, a thread moves both elements of a pair.
template <typename T>
__device__ void move_elements(const AppendCall& call, const Share& share, std::int64_t token,
                              std::int64_t place, std::int64_t row, const Rotations& rotations) {
  const Part& part = share.part;
  const int pairs = part.pairs;
  const T* from = static_cast<const T*>(part.from) + token * part.token_stride;
  T* to = static_cast<T*>(part.to) + place * part.to_strides[0] + row * part.to_strides[1];
  share.for_each(part.units(call.dim, 1), [&](int h, int i) {
    const T* const head = from + (share.begin + h) * part.head_stride;
    T* const head_to = to + (share.begin + h) * part.to_head_stride;
    if (i < pairs) {
      rotate_pair(head, head_to, PairPlaces(i, pairs, call.half_split), rotations[i]);
    } else {
      head_to[i + pairs] = head[i + pairs];
    }
  });
}

// Element d of a head, rotated and rounded to T.
template <typename T>
__device__ float rotated_element(const T* head, int d, int pairs, bool half_split,
                                 const Rotations& rotations) {
  if (d >= 2 * pairs) return to_f32(head[d]);
  const int pair = !half_split ? d / 2 : d < pairs ? d : d - pairs;
  const PairPlaces at(pair, pairs, half_split);
  const RotatedPair out = rotated(to_f32(head[at.first]), to_f32(head[at.second]), rotations[pair]);
  return to_f32(from_f32<T>(d == at.first ? out.first : out.second));
}

// Writes heads of keys or values as codes.
template <typename T>
__device__ void encode_heads(const AppendCall& call, const Share& share, std::int64_t token,
                             std::int64_t page, std::int64_t row, const Rotations& rotations) {
  const Part& part = share.part;
  const T* from = static_cast<const T*>(part.from) + token * part.token_stride;
  auto* to =
      static_cast<std::uint8_t*>(part.to) + page * part.to_strides[0] + row * part.to_strides[1];
  float* scales = part.scales + page * part.scale_strides[0] + row;
  for (int h = share.begin + static_cast<int>(threadIdx.x) / kWarp; h < share.end;
       h += kThreads / kWarp) {
    const T* head = from + h * part.head_stride;
    encode_row(
        call.dim, call.stored,
        [&](int d) { return rotated_element(head, d, part.pairs, call.half_split, rotations); },
        to + h * part.to_head_stride, scales + h * part.scale_strides[1]);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads, 4) append_rotated(AppendCall call) {
  __shared__ CosSin table[kTablePairs];
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const HeadCopies<T> copies{call, dynamic_shared<T>()};
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
    const bool has_slot = slot >= 0 && slot < call.slots_of_pool;  // else keys and values are lost
    // fn(p, share) for each part of which the block has heads.
    const auto for_each_share = [&](auto fn) {
      int before = 0;  // heads of the parts before
      for (int p = 0; p < 3; ++p) {
        const Part& part = call.parts[p];
        const int begin = std::max(first - before, 0);
        const int end = std::min(first + call.heads_of_block - before, part.heads);
        const int in_block = before + begin - first;
        before += part.heads;
        if (begin < end) fn(p, Share{part, begin, end, in_block});
      }
    };
    for_each_share([&](int, const Share& share) {
      if (share.part.way == Way::vectors) copies.fetch(share, token);
    });
    close_copy_group();
    // Blocks with only values rotate nothing.
    const bool rotates_some =
        first < call.parts[0].heads + (call.parts[1].pairs > 0 ? call.parts[1].heads : 0);
    const int entries = !rotates_some ? 0 : call.pairs < kTablePairs ? call.pairs : kTablePairs;
    for (int pair = static_cast<int>(threadIdx.x); pair < entries; pair += kThreads) {
      table[pair] = cos_sin(position, call.inv_freq[pair]);
    }
    wait_for_copies<0>();
    __syncthreads();
    const Rotations rotations{table, call.inv_freq, position};
    for_each_share([&](int, const Share& share) {
      if (share.part.way == Way::vectors) copies.rotate(share, rotations);
    });
    if (call.any_vectors) __syncthreads();
    for_each_share([&](int p, const Share& share) {
      if (p > 0 && !has_slot) return;
      const auto narrow_slot = static_cast<std::uint32_t>(slot);
      const std::int64_t place = p == 0 ? token : narrow_slot / call.page_size;
      const std::int64_t row = p == 0 ? 0 : narrow_slot % call.page_size;
      switch (share.part.way) {
        case Way::pieces:
          return move_pieces<T>(call, share, token, place, row, table);
        case Way::vectors:
          return copies.store(share, place, row);
        case Way::elements:
          return move_elements<T>(call, share, token, place, row, rotations);
        case Way::codes:
          return encode_heads<T>(call, share, token, place, row, rotations);
      }
    });
    __syncthreads();  // the table and the heads are free
  }
}

// ---- the launch ---------------------------------------------------------------------------------

constexpr int kMostShared = 32 << 10;  // of the heads of a block

Way way_of(const Tensor& from, const Tensor& to, const Tensor& scales, std::int64_t pairs,
           bool half_split) {
  if (scales.data != nullptr) return Way::codes;
  const std::int64_t size = kPieceBytes / size_of(from.dtype), dim = from.shape[2];
  if (dim % size != 0 || !rows_on_pieces(from) || !rows_on_pieces(to)) return Way::elements;
  const bool whole = pairs % size == 0 && pairs <= kTablePairs && (half_split || pairs == 0);
  if (whole) return Way::pieces;
  return dim * size_of(from.dtype) <= kMostShared ? Way::vectors : Way::elements;
}

// `to` is like `from`, or a pool of pages, which may have scales.
Part make_part(const Tensor& from, const Tensor& to, const Tensor& scales, std::int64_t pairs,
               bool half_split) {
  const bool paged = to.rank == 4;
  return {.from = from.data,
          .token_stride = from.strides[0],
          .head_stride = from.strides[1],
          .to = to.data,
          .to_head_stride = to.strides[to.rank - 2],
          .to_strides = {to.strides[0], paged ? to.strides[1] : 0},
          .heads = static_cast<int>(from.shape[1]),
          .pairs = static_cast<int>(pairs),
          .way = way_of(from, to, scales, pairs, half_split),
          .in_place = from.data == to.data,
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
  Part parts[] = {make_part(args.q, args.q_out, {}, pairs, half_split),
                  make_part(args.k, args.k_pages, args.k_scales, key_pairs, half_split),
                  make_part(args.v, args.v_pages, args.v_scales, 0, half_split)};
  const auto dim = static_cast<int>(args.q.shape[2]);
  const int size = kPieceBytes / static_cast<int>(size_of(args.q.dtype));
  std::int64_t units = 0;
  for (const Part& part : parts) units += std::int64_t{part.heads} * part.units(dim, size);
  // Four units for each thread, and at least as many blocks as keep a large GPU busy; each has at
  // least one head. If that would give more than 2^31 blocks, each token has one.
  constexpr std::int64_t kManyBlocks = 264, kUnits = 4 * kThreads;
  const std::int64_t wanted = std::max((units + kUnits - 1) / kUnits, kManyBlocks / tokens);
  const bool narrow = tokens <= std::numeric_limits<std::int32_t>::max() / heads;
  const std::int64_t blocks_of_token = narrow ? std::clamp<std::int64_t>(wanted, 1, heads) : 1;
  const std::int64_t heads_of_block = (heads + blocks_of_token - 1) / blocks_of_token;
  std::int64_t shared = 0;
  for (Part& part : parts) {
    if (part.way == Way::vectors) shared = heads_of_block * dim * size_of(args.q.dtype);
  }
  if (shared > kMostShared) {
    for (Part& part : parts) part.way = part.way == Way::vectors ? Way::elements : part.way;
    shared = 0;
  }
  const AppendCall call{
      .parts = {parts[0], parts[1], parts[2]},
      .tokens = tokens,
      .slots_of_pool = args.k_pages.shape[0] * args.k_pages.shape[1],
      .page_size = static_cast<std::uint32_t>(
          std::min<std::int64_t>(args.k_pages.shape[1], std::numeric_limits<std::uint32_t>::max())),
      .dim = dim,
      .heads_of_block = static_cast<int>(heads_of_block),
      .blocks_of_token = static_cast<int>((heads + heads_of_block - 1) / heads_of_block),
      .any_vectors = shared > 0,
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
            .shared_bytes = static_cast<int>(shared),
            .overlaps = state_of(ctx).limits().capability >= 90},
           call);
  });
}

}  // namespace tessera::cuda
