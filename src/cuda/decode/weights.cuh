// How weights pass through a warp of the persistent kernel. Every warp has a share of each product
// of each layer, known from the start. It reads its shares as one long row, independent of other
// warps:
//
//   layer 0 (parallel)                         layer 1
//   | qkv      | up        | down     | out  | qkv      | ...
//   | u u u u u|u u u u u u|u u u u u |u u   |u u u ...
//            ^ multiplied       ^ requested: kUnits ahead, so that memory is busy while blocks wait
//
// units.cuh defines a unit.
#pragma once

#include <cstdint>

#include "cuda/decode/call.h"
#include "cuda/decode/layer_kinds.cuh"
#include "cuda/decode/units.cuh"
#include "cuda/tile/cp_async.cuh"

namespace tessera::cuda::decode {

// ---- shares -------------------------------------------------------------------------------------

// How the warps of a block divide its units: evenly, or one each if there are fewer units than
// warps. Only the last warps may have no share.
struct WarpShares {
  unsigned units;

  __device__ int first(unsigned warp) const {
    return static_cast<int>(units >= kWarps ? warp * units / kWarps : min(warp, units));
  }
  __device__ int warp_of(unsigned unit) const {
    return static_cast<int>(units >= kWarps ? ((unit + 1) * kWarps - 1) / units : unit);
  }
};

// The tasks of a block, and the parts of the depth that they extend over.
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

// A warp's share of a block's tasks.
struct WarpShare {
  int count = 0;           // of units
  int unit = 0;            // the first one's place in its task
  int tile = 0, part = 0;  // of that task
  int slot = 0;            // for its sums
  int k = 0;               // of the part, among the activations that the block has

  WarpShare() = default;
  __device__ WarpShare(const StageShape& stage, const BlockShare& block, int depth, int warp) {
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
  // shares: of this warp, for each stage. A warp that does not multiply asks for nothing.
  __device__ WeightRing(const Call& call, const LayerWeights* layers, const WarpShare* shares,
                        char* ring, int lane, bool multiplies)
      : call_(call), layers_(layers), shares_(shares), ring_(ring), lane_(lane) {
    if (!multiplies) return;
    start_stage();
#pragma unroll 1
    for (int i = 0; i < Kind::kUnits; ++i) {
      find_run();
      ask();
      count(1);
    }
  }

  // Finds the next units to request. Returns how many of them are consecutive: as many take() calls
  // may follow before the next call. It takes a while, so nothing should wait for it.
  __device__ int find_run() {
    if (run_ == 0) {
      if (share_.count == 0) {
        next_stage();
        start_stage();
      } else {
        share_.next_task(call_.stages[stage()], Kind::kDepth);
        locate();
      }
    }
    return run_;
  }
  __device__ void count(int taken) { run_ -= taken; }
  // Takes the next unit once it has arrived, and starts a copy into its place.
  __device__ typename Kind::Unit take() {
    wait_for_copies<Kind::kUnits - 1>();
    const typename Kind::Unit unit = Kind::read(ring_ + at_, lane_);
    ask();
    return unit;
  }

 private:
  // Goes to the next stage in which this warp has a share.
  __device__ void start_stage() {
    while (layer_ < call_.layers && shares_[stage()].count == 0) next_stage();
    if (layer_ == call_.layers) {
      asks_ = false;
      run_ = 0x7fffffff;  // forever
      return;
    }
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
             (std::uint64_t{unit} * Kind::kCodeBytes + lane_ * 16u);
    if constexpr (Kind::kScaleBytes > 0) {
      scales_ = static_cast<const char*>(layer.scales[piece.weight]) +
                (std::uint64_t{unit} * Kind::kScaleBytes + lane_ * 4u);
    }
    run_ = min(shape.units - share_.unit, share_.count);
    share_.count -= run_;
  }
  __device__ void ask() {
    if (asks_) Kind::ask(ring_ + at_, codes_, scales_, lane_);
    codes_ += Kind::kCodeBytes;
    scales_ += Kind::kScaleBytes;
    close_copy_group();
    at_ = at_ + Kind::kUnitBytes == Kind::kUnits * Kind::kUnitBytes ? 0 : at_ + Kind::kUnitBytes;
  }

  const Call& call_;
  const LayerWeights* layers_;
  const WarpShare* shares_;
  char* ring_;
  const int lane_;
  int at_ = 0;  // the next unit to be multiplied, in bytes
  // The next unit to request; stage_ counts in the order of the layer.
  bool asks_ = true;
  int layer_ = 0, stage_ = 0;
  int run_ = 0;                  // consecutive units that are left
  WarpShare share_{};            // count: the units after them
  const char* codes_ = nullptr;  // the lane's
  const char* scales_ = nullptr;
};

// ---- products -----------------------------------------------------------------------------------

// A warp's share of a product with activations x, which lie in shared memory. The sums of a task go
// into slot (task + warp), which has Kind::kRows of them: one step on is either the next task or
// the next warp, so no two share a slot.
template <typename Kind, typename Layer>
__device__ void multiply_share(WeightRing<Kind, Layer>& ring, const StageShape& stage,
                               WarpShare share, const typename Kind::Element* x, float* slots,
                               int lane) {
  float* slot = slots + share.slot * Kind::kRows;
  typename Kind::Sums sums(x, lane);
#pragma unroll 1
  while (share.count > 0) {
    int left = min(share.count, stage.units - share.unit);
    share.count -= left;
    sums.start(share.k / Kind::kDepth + share.unit);
#pragma unroll 1
    while (left > 0) {
      // Within a run there is nothing to decide: the hot loop has no other branch.
      const int run = min(left, ring.find_run());
#pragma unroll 1
      for (int i = 0; i < run; ++i) {
        const auto activations = sums.next_x();
        sums.multiply(ring.take(), activations);
      }
      ring.count(run);
      left -= run;
    }
    sums.put(slot, lane);
    slot += Kind::kRows;
    share.next_task(stage, Kind::kDepth);
  }
}

}  // namespace tessera::cuda::decode
