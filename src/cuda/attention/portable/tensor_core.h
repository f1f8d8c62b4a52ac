// The tensor core kernels of sm_80 and later, for f16 and bf16, as the host sees them.
//
//   mma.cuh     tiles of many query rows: one block goes over all keys of its rows
//   split.cuh   sequences of few query rows: the keys are split among blocks, and their partial
//               results are merged
//   split_codes.cuh   the same for keys and values of 8 bits, which are decoded in registers
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/attention/call.h"

namespace tessera::cuda {

// The rows of one sequence and key head that the split kernel takes: one mma.sync.
inline constexpr std::int64_t kFewRows = 16;

// The most keys, or queries times heads, of a sequence: a sum of four such numbers fits an int.
inline constexpr int kMostPositions = 1 << 28;

// Strides of keys and values in units that make them fit 32 bits: 16 bytes if all rows are aligned,
// whole 16-byte chunks (`vectors`), else one element.
struct KeyUnits {
  bool vectors;
  std::uint32_t k_batch, k_row, v_batch, v_row;
  std::uint32_t page_size;
};

// Whether nothing comes between scores and their softmax. Code that a call does not run still takes
// registers, and time to load its instructions, so there are instances without it.
inline bool has_plain_scores(const AttentionCall& call) {
  return !call.capped && !call.dropping && call.inv_freq == nullptr && call.q_factor > 0.f;
}
inline bool is_lean(const AttentionCall& call) {
  return has_plain_scores(call) && !call.has_codes();
}
inline bool is_pattern(const AttentionCall& call) { return call.mask.kind == Mask::Kind::blocks; }

struct TensorCoreOptions {
  KeyUnits units;
  bool leave_few = false;           // mma leaves sequences of few rows to the split kernel
  bool codes_in_registers = false;  // the split kernel is split_codes.cuh
};

namespace mma {

template <typename T, int dim>
void launch(Context& ctx, const AttentionCall& call, const TensorCoreOptions& options);

}  // namespace mma

namespace split {

// A step is 16 keys. A sequence's steps are divided evenly among blocks of four warps.
inline constexpr int kStepKeys = 16, kWarps = 4, kMostSplits = 32;

// Short sequences have up to this many steps.
inline constexpr int kShortSteps = 128;

// About two for each multiprocessor of the largest GPU. All run at the same time.
inline constexpr int kBlocksAtOnce = 256;

// The most queries of a run that is taken in tiles of kFewRows rows.
inline constexpr std::int64_t kRunQueries = 16;

// How the keys of a head are divided among blocks.
struct SplitRule {
  int limit = 1;  // of blocks, so that the blocks of all heads of a sequence run at the same time
  // The fewest steps of a warp, for short and for long sequences. Starting and ending a block and
  // merging its partial results takes as long as some steps. Long sequences have enough blocks even
  // with more steps each.
  int least_short = 1, least_long = 1;
};

// `slots`: the key heads of all sequences, or of one sequence if the bits of a result must not
// depend on the rest of the batch (AttentionArgs::fixed_splits). Few slots need many blocks each to
// keep all of memory busy. Many slots do not: at 32 sequences of 512 keys and 32 heads of 80,
// blocks of 8 steps take 57 us, blocks of 2 steps 82. Measured on an H200
// (docs/notebook/attention_portable.md).
constexpr SplitRule split_rule(std::int64_t kv_heads, std::int64_t slots) {
  const int least = slots <= 32 ? 2 : slots <= 128 ? 4 : 8;
  return {
      .limit = static_cast<int>(std::clamp<std::int64_t>(kBlocksAtOnce / kv_heads, 8, kMostSplits)),
      .least_short = least,
      .least_long = std::max(least, 4)};
}
TESSERA_HOST_DEVICE constexpr int steps_of_split(int steps, const SplitRule& rule) {
  const int share = (steps + rule.limit - 1) / rule.limit, of_warp = (share + kWarps - 1) / kWarps;
  const int least = steps <= kShortSteps ? rule.least_short : rule.least_long;
  return std::max(least, of_warp) * kWarps;
}
TESSERA_HOST_DEVICE constexpr int splits_of(int steps, const SplitRule& rule) {
  const int each = steps_of_split(steps, rule);
  return std::max(1, (steps + each - 1) / each);  // a sequence without keys has an output too
}
// The most splits of a sequence with up to this many keys. Besides the last step, at most one step
// is not full: the one that ends the sinks. A sequence with fewer steps may have more splits if it
// is short.
constexpr int most_splits(std::int64_t keys, const SplitRule& rule) {
  const auto of = [&](std::int64_t steps, int least) {
    return static_cast<int>(std::min<std::int64_t>(rule.limit, (steps + least - 1) / least));
  };
  const std::int64_t steps = (keys + kStepKeys - 1) / kStepKeys + 1;
  const int of_short = of(std::min<std::int64_t>(steps, kShortSteps), kWarps * rule.least_short);
  return std::max(of_short, of(steps, kWarps * rule.least_long));
}

// The queries of a sequence in tiles of as many rows as a block has. A run with more rows is cut
// into several tiles, each a sequence of its own (SmallSequence::run). The blocks of the tiles are
// neighbours: one reads keys from memory, the others find them in the L2 cache.
struct QueryTiles {
  int count = 1, queries = kMostPositions;  // of a sequence, and of a tile
};

// The largest size of a call's Partials: [slots, splits, rows].
struct PartialShape {
  SplitRule rule{};
  QueryTiles tiles{};
  std::int64_t slots = 0;
  int splits = 1;  // 1: there are no partials
  int rows = 0;    // of a slot
};

// The partial results of blocks: sums [slots, splits, rows, dim] of values weighted by
// 2^(score - largest), and for each row (largest, sum of weights). A slot is a key head of a
// tile of a sequence.
struct Partials {
  float* sums = nullptr;
  float* largest_and_sum = nullptr;
  SplitRule rule{};
  QueryTiles tiles{};
  int splits = 1;  // for this number of keys; 1: no partials
  int rows = 1;    // at most, of a slot
  // A zero for each slot if the block that finishes last merges. Null: a second kernel merges.
  std::int32_t* counters = nullptr;
};

// One of q, k and v of new tokens, [tokens, heads, dim]; strides in elements.
struct TokenHeads {
  const void* data = nullptr;
  std::int64_t token_stride = 0, head_stride = 0;
};

// Two elements of a head that are rotated together.
struct Pair {
  int first, second;
};

// The new tokens of a call as the product left them; the kernel rotates them and writes keys and
// values to the cache (append_attention). Token i is query i, in the order of q.
struct NewTokens {
  TokenHeads q, k, v;
  const void* positions = nullptr;
  DType position_dtype = DType::i32;
  const std::int32_t* slots = nullptr;
  const float* inv_freq = nullptr;
  int pairs = 0;
  bool half_split = true;
  bool settled = false;  // AppendAttentionArgs::settled

  TESSERA_HOST_DEVICE Pair pair(int i) const {
    return half_split ? Pair{i, i + pairs} : Pair{2 * i, 2 * i + 1};
  }
};

// The most rotations of a sequence's new tokens that a block keeps in shared memory.
inline constexpr int kMostRotations = 512;

// Up to this many rows, the last block does the merge, two rows to a warp.
inline constexpr std::int64_t kMergedRows = 8;

// The widest heads whose codes are decoded in registers. Wider heads leave no registers for it.
inline constexpr int kMostCodes = 128;

// Launches the blocks of a call with codes_in_registers. Their parts still have to be merged.
template <typename T, int dim>
void launch_codes(Context& ctx, const AttentionCall& call, const TensorCoreOptions& options,
                  const Partials& partials);

// `tokens`: null if the cache has all keys.
template <typename T, int dim>
void launch(Context& ctx, const AttentionCall& call, const TensorCoreOptions& options,
            const Partials& partials, const NewTokens* tokens);

}  // namespace split
}  // namespace tessera::cuda
