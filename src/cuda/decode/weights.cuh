// The weights' way through a warp of the persistent kernel. Every warp has a share of each product
// of each layer, known from the start, and reads its shares in one long row, whatever the other
// warps are at:
//
//   layer 0 (parallel)                         layer 1
//   | qkv      | up        | down     | out  | qkv      | ...
//   | u u u u u|u u u u u u|u u u u u |u u   |u u u ...
//            ^ multiplied       ^ asked for: kUnits ahead, so that memory is busy while blocks wait
//
// A unit is what a warp multiplies at once. A lane asks for its own bytes of it (cp.async), and
// nobody else reads them: waiting for one's own copies is enough.
#pragma once

#include <cstdint>

#include "cuda/decode/call.h"
#include "cuda/decode/layer_kinds.cuh"
#include "cuda/linear/layout/fragments.cuh"
#include "cuda/linear/layout/scales.cuh"
#include "cuda/linear/portable/stream_one_token.cuh"
#include "cuda/tile/cp_async.cuh"
#include "cuda/tile/cp_async_word.cuh"
#include "cuda/tile/element.cuh"
#include "cuda/tile/warp.cuh"

namespace tessera::cuda::decode {

// ---- kinds of weights ---------------------------------------------------------------------------

// E2M1 tiles of 16 rows (tile_layout.h), by the tensor cores. A unit is a pair of slabs, 128 deep.
template <Format F, typename T>
struct TileWeights {
  using Element = T;
  using Sums = StreamOneSums<F, ScaleMode::fragments, false, T>;
  static_assert(F == Format::nvfp4);  // others need scales of rows beside
  static constexpr Format kFormat = F;
  static constexpr int kRows = kTileHeight, kDepth = kPair;
  static constexpr int kCodeBytes = kRows * kDepth / 2;
  static constexpr int kScaleBytes = 128;
  static constexpr int kUnitBytes = kCodeBytes + kScaleBytes;  // a word of these for each lane
  static constexpr int kUnits = 10;                            // 9 KiB of a warp, 18 MB of an H200

  __device__ static void ask(char* to, const char* codes, const char* scales, int lane) {
    copy_async(to + lane * 16, codes + lane * 16, true);
    copy_async(to + 512 + lane * 16, codes + 512 + lane * 16, true);
    copy_async_word(to + kCodeBytes + lane * 4, scales + lane * 4);
  }
};

// Dense rows. A unit is 256 neighbours of one row.
template <typename T>
struct RowWeights {
  using Element = T;
  static constexpr Format kFormat = Format::dense;
  static constexpr int kRows = 1, kDepth = 256;
  static constexpr int kCodeBytes = kDepth * 2, kScaleBytes = 0, kUnitBytes = kCodeBytes;
  static constexpr int kUnits = 22;  // as many bytes as above

  __device__ static void ask(char* to, const char* codes, const char* /*scales*/, int lane) {
    copy_async(to + lane * 16, codes + lane * 16, true);
  }

  // A lane's sum of the row that the warp is at.
  struct Sums {
    const T* x;
    float sum = 0;
    __device__ void multiply(const uint4& codes, int k, int lane) {
      const uint4 vector = *reinterpret_cast<const uint4*>(x + k + lane * 8);
      const std::uint32_t w[4] = {codes.x, codes.y, codes.z, codes.w};
      const std::uint32_t a[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sum += to_f32(T{static_cast<std::uint16_t>(w[i])}) *
               to_f32(T{static_cast<std::uint16_t>(a[i])});
        sum += to_f32(T{static_cast<std::uint16_t>(w[i] >> 16)}) *
               to_f32(T{static_cast<std::uint16_t>(a[i] >> 16)});
      }
    }
    __device__ void put(float* slot, int lane) {
      const float total = warp_reduce(sum, Sum());
      if (lane == 0) *slot = total;
      sum = 0;
    }
  };
};

// ---- shares -------------------------------------------------------------------------------------

// How the warps of a block share its units: evenly, or one each where there are fewer. No warp
// before the last one with a share has none.
struct WarpShares {
  unsigned units;

  __device__ int first(unsigned warp) const {
    return static_cast<int>(units >= kWarps ? warp * units / kWarps : min(warp, units));
  }
  __device__ int warp_of(unsigned unit) const {
    return static_cast<int>(units >= kWarps ? ((unit + 1) * kWarps - 1) / units : unit);
  }
};

// The tasks of a block, and the parts of the depth that they reach over.
struct BlockShare {
  int first, tasks;
  int first_part, last_part;
  WarpShares warps;

  __device__ explicit BlockShare(const StageShape& stage) {
    const int all = stage.tiles * stage.parts / stage.together;
    const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
    const int each = all / blocks, longer = all % blocks;
    first = (block * each + min(block, longer)) * stage.together;
    tasks = (each + (block < longer)) * stage.together;
    first_part = min(first / stage.tiles, stage.parts - 1);
    last_part = tasks > 0 ? (first + tasks - 1) / stage.tiles : first_part;
    warps.units = static_cast<unsigned>(tasks * stage.units);
  }
};

// What a warp has of it.
struct WarpShare {
  int count = 0;           // of units
  int unit = 0;            // the first one's place in its task
  int tile = 0, part = 0;  // of that task
  int slot = 0;            // for its sums
  int k = 0;               // of the part, among the activations that the block has

  WarpShare() = default;
  __device__ WarpShare(const StageShape& stage, int depth, int warp) {
    const BlockShare block(stage);
    const int begin = block.warps.first(warp), task = begin / stage.units;
    count = block.warps.first(warp + 1) - begin;
    unit = begin - task * stage.units;
    part = (block.first + task) / stage.tiles;
    tile = block.first + task - part * stage.tiles;
    slot = task + warp;
    k = (part - block.first_part) * stage.units * depth;
  }
  __device__ void next_task(const StageShape& stage, int depth) {
    unit = 0;
    if (++tile == stage.tiles) tile = 0, ++part, k += stage.units * depth;
  }
};

// ---- the ring -----------------------------------------------------------------------------------

template <typename Kind, typename Layer>
class WeightRing {
 public:
  // shares: of this warp, for each stage.
  __device__ WeightRing(const Call& call, const LayerWeights* layers, const WarpShare* shares,
                        char* ring, int lane)
      : call_(call), layers_(layers), shares_(shares), ring_(ring), lane_(lane) {
    start_stage();
#pragma unroll 1
    for (int i = 0; i < Kind::kUnits; ++i) ask(i);
  }

  // The next unit has landed: where it is. It is there until ask_next().
  __device__ const char* wait() {
    wait_for_copies<Kind::kUnits - 1>();
    return ring_ + at_ * Kind::kUnitBytes;
  }
  // Fills its place.
  __device__ void ask_next() {
    ask(at_);
    at_ = at_ + 1 == Kind::kUnits ? 0 : at_ + 1;
  }

 private:
  // The next stage of which this warp has anything.
  __device__ void start_stage() {
    while (layer_ < call_.layers && shares_[stage()].count == 0) next_stage();
    if (layer_ == call_.layers) return;
    share_ = shares_[stage()];
    locate();
  }
  __device__ int stage() const { return Layer::stage(stage_); }
  __device__ void next_stage() {
    if (++stage_ == kStages) stage_ = 0, ++layer_;
  }
  __device__ void locate() {
    const StageShape& shape = call_.stages[stage()];
    const Piece piece = Layer::piece(call_, stage(), share_.tile);
    const auto unit =
        static_cast<unsigned>((piece.tile * shape.parts + share_.part) * shape.units + share_.unit);
    const LayerWeights& layer = layers_[layer_];
    codes_ = static_cast<const char*>(layer.codes[piece.weight]) +
             std::uint64_t{unit} * Kind::kCodeBytes;
    if constexpr (Kind::kScaleBytes > 0) {
      scales_ = static_cast<const char*>(layer.scales[piece.weight]) +
                std::uint64_t{unit} * Kind::kScaleBytes;
    }
    task_left_ = shape.units - share_.unit;
  }
  __device__ void ask(int place) {
    if (layer_ < call_.layers) {
      Kind::ask(ring_ + place * Kind::kUnitBytes, codes_, scales_, lane_);
      codes_ += Kind::kCodeBytes;
      scales_ += Kind::kScaleBytes;
      if (--share_.count == 0) {
        next_stage();
        start_stage();
      } else if (--task_left_ == 0) {
        share_.next_task(call_.stages[stage()], Kind::kDepth);
        locate();
      }
    }
    close_copy_group();
  }

  const Call& call_;
  const LayerWeights* layers_;
  const WarpShare* shares_;
  char* ring_;
  const int lane_;
  int at_ = 0;  // the place of the next unit to be multiplied
  // The next unit to be asked for; stage_ counts in the order of the layer.
  int layer_ = 0, stage_ = 0, task_left_ = 0;
  WarpShare share_{};
  const char* codes_ = nullptr;
  const char* scales_ = nullptr;
};

// ---- products -----------------------------------------------------------------------------------

// A warp's share of a product with activations x, which lie in shared memory. The sums of a task go
// into slot (task + warp), which has Kind::kRows of them: one step on is either the next task or
// the next warp, so no two meet.
template <typename Kind, typename Layer>
__device__ void multiply_share(WeightRing<Kind, Layer>& ring, const StageShape& stage,
                               WarpShare share, typename Kind::Element* x, float* slots, int lane) {
  using T = typename Kind::Element;
  if (share.count == 0) return;
  int k = share.k + share.unit * Kind::kDepth, task_left = stage.units - share.unit;
  float* slot = slots + share.slot * Kind::kRows;
  const auto next = [&](auto& sums) {
    k += Kind::kDepth;
    --share.count;
    if (static_cast<int>(--task_left == 0) | static_cast<int>(share.count == 0)) {
      sums.put(slot, lane);
      slot += Kind::kRows;
      share.next_task(stage, Kind::kDepth);
      k = share.k;
      task_left = stage.units;
    }
  };
  if constexpr (Kind::kFormat == Format::dense) {
    typename Kind::Sums sums{x};
#pragma unroll 1
    while (share.count > 0) {
      const uint4 codes = *reinterpret_cast<const uint4*>(ring.wait() + lane * 16);
      ring.ask_next();
      sums.multiply(codes, k, lane);
      next(sums);
    }
  } else {
    typename Kind::Sums sums(x, /*pairs=*/0, /*x_is_scaled=*/false, lane);
    RowState rows = no_rows<Kind::kFormat, T>(nullptr, lane);
#pragma unroll 1
    while (share.count > 0) {
      const char* from = ring.wait();
      SlabPair<4> pair;
      store_words(*reinterpret_cast<const uint4*>(from + lane * 16), pair.words[0]);
      store_words(*reinterpret_cast<const uint4*>(from + 512 + lane * 16), pair.words[1]);
      pair.scales.words[0] =
          *reinterpret_cast<const std::uint32_t*>(from + Kind::kCodeBytes + lane * 4);
      sums.multiply(pair, k, rows, [&] { ring.ask_next(); });
      next(sums);
    }
  }
}

}  // namespace tessera::cuda::decode
