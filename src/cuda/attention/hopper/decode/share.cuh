// Which steps of which sequences a block has. Lengths are in device memory, so every block counts
// the steps of all sequences, then finds its own:
//
//   steps of a head   | sequence 0       | 1    | 2              | 3         |
//   blocks            | 0         | 1         | 2         | 3         |
//   pieces            | 0         | 1    | 1  | 1| 2      | 2    | 3  |
//
// A piece is the part of one sequence and key head that one block has.
#pragma once

#include <algorithm>

#include "cuda/attention/hopper/decode/call.h"
#include "cuda/attention/portable/fragments.cuh"
#include "cuda/attention/portable/key_tile_loop.cuh"
#include "cuda/attention/portable/small_sequence.cuh"

namespace tessera::cuda::hopper_decode {

// The rows of a sequence that share a key head. None if the sequence is left to another kernel.
__device__ inline int rows_of(const AttentionCall& call, const SmallSequence& s) {
  const int rows = s.n_q * static_cast<int>(call.group);
  return rows > static_cast<int>(kFewRows) ? 0 : rows;
}

__device__ inline KeyTileLoop loop_over(const AttentionCall& call, const SmallSequence& s) {
  KeyTileLoop loop;
  loop.start(call.mask, s, 0, s.n_q - 1, false);
  loop.blocks = false;  // tells the compiler
  return loop;
}

// Where keys lie in the pages of a sequence. Steps, copies and places in a stage count slots. Only
// a cache that has dropped keys has a hole, and then the mask hides no early keys (takes_layout):
// the steps cover the slots before the hole, then the slots after it.
struct Slots {
  int hole_begin, hole_size;

  __device__ explicit Slots(const SmallSequence& s)
      : hole_begin(s.hole_begin), hole_size(s.hole_size) {}
  __device__ int hole_end() const { return hole_begin + hole_size; }
  // The slot after those of the first n keys.
  __device__ int behind(int n) const { return n > hole_begin ? n + hole_size : n; }
  __device__ bool in_hole(int slot) const { return slot >= hole_begin && slot < hole_end(); }
  // Whether some of n slots from this one on are in the hole.
  __device__ bool meet_hole(int slot, int n) const {
    return slot < hole_end() && slot + n > hole_begin && hole_size > 0;
  }
  // The key of a slot that is not in the hole.
  __device__ int key(int slot) const { return slot < hole_begin ? slot : slot - hole_size; }
};

template <int keys>
__device__ KeySteps<keys> steps_over(const SmallSequence& s, KeyTileLoop loop) {
  const Slots slots(s);
  if (slots.hole_size > 0) {
    loop.sinks = std::min(loop.end, slots.hole_begin);
    loop.begin = slots.hole_end();
    loop.end = slots.behind(loop.end);
  }
  return KeySteps<keys>(loop);
}

// Which slots queries see.
struct LoopAroundHole {
  const KeyTileLoop& loop;
  Slots slots;

  __device__ std::uint64_t seen(int i, int slot) const {
    const std::uint64_t before = ones(slots.hole_begin - slot);
    const std::uint64_t behind = ~ones(slots.hole_end() - slot);
    return (loop.seen(i, slot) & before) | (loop.seen(i, slot - slots.hole_size) & behind);
  }

 private:
  // The lowest n bits.
  __device__ static std::uint64_t ones(int n) {
    return n <= 0 ? 0 : n >= kKeysOfWord ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1;
  }
};

// A sequence that sees no keys has an output too, so it has one step, whose keys no query sees.
template <int keys>
__device__ int count_steps(const AttentionCall& call, int index) {
  const SmallSequence s = SmallSequence::of(call, index);
  return rows_of(call, s) == 0 ? 0 : std::max(1, steps_over<keys>(s, loop_over(call, s)).count);
}

// before[i] is the number of steps of a head in all sequences before i; before[sequences] is the
// total. A step has `keys` keys. All threads of a block call it.
template <int keys>
__device__ void count_steps(const AttentionCall& call, int* before) {
  const int sequences = static_cast<int>(call.sequences), lane = static_cast<int>(threadIdx.x) % 32;
  for (int i = static_cast<int>(threadIdx.x); i < sequences; i += static_cast<int>(blockDim.x)) {
    before[i + 1] = count_steps<keys>(call, i);
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    int sum = 0;  // of all sequences before `first`
    for (int first = 0; first < sequences; first += 32) {
      const int i = first + lane;
      int here = i < sequences ? before[i + 1] : 0;
#pragma unroll
      for (int reach = 1; reach < 32; reach *= 2) {
        const int left = __shfl_up_sync(0xffffffffu, here, reach);
        if (lane >= reach) here += left;
      }
      if (i < sequences) before[i + 1] = sum + here;
      sum += __shfl_sync(0xffffffffu, here, 31);
    }
    if (lane == 0) before[0] = 0;
  }
  __syncthreads();
}

// The pieces of a block, one after the other. Every thread that follows along finds the same
// pieces.
struct Pieces {
  const int* before;
  int sequences, of_head;      // of_head: steps of all sequences
  int heads, sequence;         // of the piece; heads: in groups of heads that share a block
  int begin, end;              // steps of the sequence
  int left;                    // steps of the block, from the piece on
  int group, block, origin;    // block: of the group; origin: the group's first block in all
  int first_step, each, rest;  // of the group: the piece's first, and how steps are divided

  // `of_block`: key heads that share a block.
  __device__ Pieces(const DecodeCall& c, const int* steps_before, int of_block)
      : before(steps_before),
        sequences(static_cast<int>(c.call.sequences)),
        of_head(steps_before[sequences]) {
    const int groups = c.shares.groups, blocks = c.shares.each;
    const int of_group = static_cast<int>(c.call.kv_heads) / of_block / groups;
    const int all = of_group * of_head;
    group = static_cast<int>(blockIdx.x) % groups;  // neighbouring blocks have neighbouring heads
    block = static_cast<int>(blockIdx.x) / groups;
    origin = group * blocks;
    each = all / blocks;
    rest = all - each * blocks;
    first_step = each * block + std::min(block, rest);
    left = each + (block < rest ? 1 : 0);
    if (left == 0) return;
    const int head = first_step / of_head, at = first_step - head * of_head;
    heads = group * of_group + head;
    int low = 0, high = sequences - 1;  // the last sequence that begins at `at` or before
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (before[middle] <= at) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    sequence = low;
    begin = at - before[sequence];
    set_end();
  }
  __device__ bool done() const { return left == 0; }
  __device__ void next() {
    left -= end - begin;
    first_step += end - begin;
    if (left == 0) return;
    do {
      if (++sequence == sequences) {
        sequence = 0;
        ++heads;
      }
    } while (steps() == 0);
    begin = 0;
    set_end();
  }
  __device__ int steps() const { return before[sequence + 1] - before[sequence]; }
  __device__ bool is_whole() const { return end - begin == steps(); }
  __device__ int slot() const { return heads * sequences + sequence; }

  // The parts of the piece's slot.
  __device__ int part() const { return slot() + origin + block; }
  __device__ int first_part() const { return slot() + origin + owner(first_step - begin); }
  __device__ int parts() const {
    const int start = first_step - begin;
    return owner(start + steps() - 1) - owner(start) + 1;
  }

 private:
  __device__ void set_end() { end = std::min(steps(), begin + left); }
  // Which of the group's blocks has this step of the group.
  __device__ int owner(int step) const {
    const int longer = rest * (each + 1);
    return step < longer ? step / (each + 1) : rest + (step - longer) / each;
  }
};

}  // namespace tessera::cuda::hopper_decode
