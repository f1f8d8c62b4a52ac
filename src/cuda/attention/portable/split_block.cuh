// A block of the split kernel (split.cuh): its shared memory, its share of the keys, and how they
// are loaded.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/attention/call.h"
#include "cuda/attention/portable/coded_rows.cuh"
#include "cuda/attention/portable/fragments.cuh"
#include "cuda/attention/portable/key_tile_loop.cuh"
#include "cuda/attention/portable/shared_rows.cuh"
#include "cuda/attention/portable/split_new_tokens.cuh"
#include "cuda/attention/portable/tensor_core.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/state.h"

namespace tessera::cuda::split {

inline constexpr int kThreads = 32 * kWarps, kRows = static_cast<int>(kFewRows);

__device__ inline int warp_of_block() { return static_cast<int>(threadIdx.x) / 32; }

// One step of one warp.
template <int dim>
struct Stage {
  unsigned char k[kStepKeys * PaddedRows<dim>::kRowBytes];
  unsigned char v[kStepKeys * PaddedRows<dim>::kRowBytes];
};

// A part of a sequence's page table. Without it, each step of a ring would wait for its table entry
// before it could load its keys.
struct PageList {
  static constexpr int kMost = 256;
  std::uint32_t first;  // in the table
  std::int32_t pages[kMost];

  // Loads the entries up to `last`. All threads call it.
  __device__ void fill(const std::int32_t* table, std::uint32_t from, std::uint32_t last) {
    for (std::uint32_t i = threadIdx.x; i < kMost && from + i <= last; i += kThreads) {
      pages[i] = table[from + i];
    }
    if (threadIdx.x == 0) first = from;
  }
  __device__ std::uint32_t page(const std::int32_t* table, std::uint32_t index) const {
    const std::uint32_t at = index - first;
    return static_cast<std::uint32_t>(at < kMost ? pages[at] : table[index]);
  }
};

template <int dim, typename Step = Stage<dim>>
struct alignas(16) Shared {
  unsigned char q[kRows * PaddedRows<dim>::kRowBytes];
  float largest[kWarps][kRows], sum[kWarps][kRows];
  KeyTileLoop loop;
  PageList pages;

  // After this struct: the warps' rings and, after the last key, their results.
  __device__ Step* ring(int stages) {
    return reinterpret_cast<Step*>(this + 1) + warp_of_block() * stages;
  }
  __device__ float* out(int warp, int row) {
    return reinterpret_cast<float*>(this + 1) + (warp * kRows + row) * dim;
  }
  // After the rings: the rotations of new tokens.
  __device__ CosSin* rotations(int stages) {
    return reinterpret_cast<CosSin*>(reinterpret_cast<Step*>(this + 1) + kWarps * stages);
  }
};

template <int dim, typename Step = Stage<dim>>
constexpr int shared_bytes(int stages, int rotations) {
  const int rings = kWarps * stages * static_cast<int>(sizeof(Step)) + rotations * 8;
  const int results = kWarps * kRows * dim * 4;
  return static_cast<int>(sizeof(Shared<dim, Step>)) + std::max(rings, results);
}

// The number of stages of a warp: as many as let `sharing` blocks share a multiprocessor, whose
// shared memory is hardly more than the most one block may have; at least two if one block has room
// for them. A warp with fewer steps needs no more stages than steps.
template <int dim, typename Step = Stage<dim>>
constexpr int stages_for(std::int64_t most_bytes, int sharing, int steps_of_warp) {
  constexpr int kMost = 4, kReserved = 1024;  // the system's part of a block
  int stages = 1;
  const auto fits = [&](std::int64_t bytes) {
    return shared_bytes<dim, Step>(stages + 1, 0) <= bytes;
  };
  while (stages < std::min(kMost, steps_of_warp) &&
         fits(stages == 1 ? most_bytes : most_bytes / sharing - kReserved)) {
    ++stages;
  }
  return stages;
}

inline std::int64_t slots_of_call(const AttentionCall& call, const Partials& partials) {
  return call.sequences * call.kv_heads * partials.tiles.count;
}

// The stages of a call. With at most two blocks for each multiprocessor, rings are longer.
template <int dim, typename Step>
int stages_of_call(const DeviceLimits& gpu, const AttentionCall& call, const Partials& partials,
                   int most_sharing) {
  const int steps = static_cast<int>((call.n_k + kStepKeys - 1) / kStepKeys) + 1;
  const std::int64_t blocks = slots_of_call(call, partials) * partials.splits;
  return stages_for<dim, Step>(gpu.shared_bytes,
                               blocks > 2 * gpu.multiprocessors ? most_sharing : 2,
                               steps_of_split(steps, partials.rule) / kWarps);
}

inline Grid grid_of_call(const DeviceLimits& gpu, const AttentionCall& call,
                         const Partials& partials, int shared_bytes) {
  return {.blocks = slots_of_call(call, partials) * partials.splits,
          .threads = kThreads,
          .shared_bytes = shared_bytes,
          .overlaps = gpu.capability >= 90};
}

// Waits until at most `left` groups are in flight; `left` is at most three.
__device__ inline void wait_for_all_but(int left) {
  if (left == 0) {
    wait_for_copies<0>();
  } else if (left == 1) {
    wait_for_copies<1>();
  } else if (left == 2) {
    wait_for_copies<2>();
  } else {
    wait_for_copies<3>();
  }
}

using Steps = KeySteps<kStepKeys>;

// A block's part of the work.
struct Part {
  QueryRows rows;
  Steps steps;
  int begin, end;  // its steps
};

// A split of a key head of a tile of a sequence: item ((sequence * splits + split) * kv_heads +
// kv_head) * tiles + tile. In 32 bits, because a division then takes a quarter of the time.
struct Item {
  int sequence, split, kv_head, tile;

  __device__ Item(const AttentionCall& call, const QueryTiles& of_queries, int most_splits,
                  std::uint32_t item) {
    const auto kv_heads = static_cast<std::uint32_t>(call.kv_heads);
    const auto splits = static_cast<std::uint32_t>(most_splits);
    const auto tiles = static_cast<std::uint32_t>(of_queries.count);
    tile = 0;
    if (tiles > 1) {  // else no division is needed
      tile = static_cast<int>(item % tiles);
      item /= tiles;
    }
    const std::uint32_t of_heads = item / kv_heads;
    kv_head = static_cast<int>(item - of_heads * kv_heads);
    sequence = static_cast<int>(of_heads / splits);
    split = static_cast<int>(of_heads % splits);
  }
  __device__ std::uint32_t slot(const AttentionCall& call, const QueryTiles& tiles) const {
    return (static_cast<std::uint32_t>(sequence) * static_cast<std::uint32_t>(call.kv_heads) +
            static_cast<std::uint32_t>(kv_head)) *
               static_cast<std::uint32_t>(tiles.count) +
           static_cast<std::uint32_t>(tile);
  }
  __device__ SmallSequence run(const AttentionCall& call, const QueryTiles& tiles) const {
    const SmallSequence whole = SmallSequence::of(call, sequence);
    return tiles.count == 1 ? whole : whole.run(tile * tiles.queries, tiles.queries);
  }
};

// Block i has item i.
struct Assignment {
  Item item;
  SmallSequence sequence;
  int rows;          // of queries
  KeyTileLoop loop;  // over the keys that the rows see
  Steps steps;
  int each, begin;  // steps of each block, and the first step of this one

  // Patterns: the mask may be a pattern of blocks.
  __device__ Assignment(const AttentionCall& call, const Partials& partials, bool patterns)
      : item(call, partials.tiles, partials.splits, blockIdx.x),
        sequence(item.run(call, partials.tiles)),
        rows(sequence.n_q * static_cast<int>(call.group)),
        loop(loop_over(call, sequence, patterns)),
        steps(loop),
        each(steps_of_split(steps.count, partials.rule)),
        begin(item.split * each) {}

  // Nothing to do: no queries, so many that another kernel has them, or no steps left.
  __device__ bool is_empty() const {
    return rows == 0 || rows > kRows || (begin >= steps.count && item.split > 0);
  }
  __device__ Part part(const AttentionCall& call) const {
    return {
        {call, sequence, item.kv_head, 0, rows}, steps, begin, std::min(steps.count, begin + each)};
  }

 private:
  __device__ static KeyTileLoop loop_over(const AttentionCall& call, const SmallSequence& s,
                                          bool patterns) {
    KeyTileLoop loop;
    loop.start(call.mask, s, 0, s.n_q - 1, false);
    if (!patterns) loop.blocks = false;  // tells the compiler
    return loop;
  }
};

// The steps of one warp: every fourth of the block's steps that some row sees. Lean: there is no
// block pattern, and every step is seen.
template <bool lean>
struct WarpSteps {
  const Part& part;
  const KeyTileLoop& loop;
  int next;

  // The first key of the next step, or -1.
  __device__ int take() {
    for (; next < part.end; next += kWarps) {
      const int k0 = part.steps.key(next);
      if (!lean && !loop.visits(k0, kStepKeys)) continue;
      next += kWarps;
      return k0;
    }
    return -1;
  }
};

// The pages that hold the block's keys.
__device__ inline void list_pages(const Part& part, const KeyUnits& units, PageList& list) {
  const SmallSequence& s = part.rows.sequence;
  const int last_key = std::min(part.steps.key(part.end - 1) + kStepKeys, s.n_k) - 1;
  if (part.begin >= part.end || last_key < 0) return;
  list.fill(part.rows.call.page_table + s.index * part.rows.call.table_stride,
            page_slot(s, part.steps.key(part.begin)) / units.page_size,
            page_slot(s, last_key) / units.page_size);
}

// The first row of a step whose keys are neighbours: all exist before key `end`, in one page of the
// pool. One address is then enough, which saves half the instructions of a step.
struct Neighbours {
  bool found;
  std::uint32_t batch, row;
};
template <typename PageAt>
__device__ Neighbours find_neighbours(const QueryRows& rows, const KeyUnits& units, int k0, int end,
                                      PageAt page_at) {
  const SmallSequence& s = rows.sequence;
  Neighbours at{false, static_cast<std::uint32_t>(s.k_batch),
                static_cast<std::uint32_t>(s.k_begin + k0)};
  if (k0 + kStepKeys > end) return at;
  if (rows.call.page_table != nullptr) {
    if (k0 < s.hole_begin && k0 + kStepKeys > s.hole_begin) return at;
    const std::uint32_t slot = page_slot(s, k0), page = slot / units.page_size;
    at.row = slot - page * units.page_size;
    if (at.row + kStepKeys > units.page_size) return at;
    at.batch = page_at(page);
    if (at.batch >= static_cast<std::uint32_t>(rows.call.pool_pages)) return at;
  }
  at.found = true;
  return at;
}

// Starts the copies of the queries. All threads call it.
template <typename T, int dim>
__device__ void copy_queries(const QueryRows& rows, bool vectors, unsigned char* to) {
  const AttentionCall& call = rows.call;
  load_queries<dim, kRows, kThreads, T>(to, call.dim, vectors, [&](int r) {
    return r < rows.size
               ? call.query_row<const T>(call.q, rows.sequence, rows.query(r), rows.head(r))
               : nullptr;
  });
}

// Starts the copies of steps. Lean: is_lean(), no block pattern, and rows are copied in vectors.
// Append: keys of new tokens are not read from their pages.
template <typename T, int dim, bool lean, bool append>
struct Loader {
  const QueryRows& rows;
  const KeyUnits& units;
  const void *k, *v;  // the head's first row
  const PageList& list;
  const NewRows<T>& fresh;
  RowCopy<dim, kStepKeys, 32> copies;

  __device__ bool in_vectors() const { return lean || units.vectors; }
  __device__ bool has_codes() const { return !lean && rows.call.has_codes(); }
  __device__ CodedRows<T, dim, kStepKeys, 32> coded() const {
    return {lane_of_warp(), rows.call.dim, rows.call.stored, units.vectors};
  }
  __device__ void queries(unsigned char* to) const { copy_queries<T, dim>(rows, in_vectors(), to); }
  __device__ std::uint32_t page_at(std::uint32_t index) const {
    const AttentionCall& call = rows.call;
    return list.page(call.page_table + rows.sequence.index * call.table_stride, index);
  }
  __device__ bool copy_neighbours(int k0, Stage<dim>& stage) const {
    const Neighbours at =
        find_neighbours(rows, units, k0, append ? fresh.first() : rows.sequence.n_k,
                        [&](std::uint32_t i) { return page_at(i); });
    if (!at.found) return false;
    copies.neighbours(stage.k, static_cast<const T*>(k),
                      at.batch * units.k_batch + at.row * units.k_row, units.k_row);
    copies.neighbours(stage.v, static_cast<const T*>(v),
                      at.batch * units.v_batch + at.row * units.v_row, units.v_row);
    return true;
  }
  // True if the lane's key is lost.
  __device__ bool step(int k0, Stage<dim>& stage) const {
    if (lean && copy_neighbours(k0, stage)) return false;
    // For the lane's key; each key has two lanes.
    const int key = k0 + lane_of_warp() % kStepKeys;
    const SmallSequence& s = rows.sequence;
    KeyRow mine = find_key_row(units, s, key, [&](int j) {
      return find_key_place(rows.call, units, s, j, [&](std::uint32_t i) { return page_at(i); });
    });
    if (append && fresh.has(key)) mine = {kElsewhere, kElsewhere};
    const auto k_row = [&](int r) { return __shfl_sync(0xffffffffu, mine.k, r); };
    const auto v_row = [&](int r) { return __shfl_sync(0xffffffffu, mine.v, r); };
    if (has_codes()) {
      coded().copy(stage.k, k, k_row);
      coded().copy(stage.v, v, v_row);
    } else {
      copies.copy(stage.k, static_cast<const T*>(k), in_vectors(), k_row);
      copies.copy(stage.v, static_cast<const T*>(v), in_vectors(), v_row);
    }
    if (append && fresh.in_step(k0)) fresh.template copy<dim>(k0, stage.k, stage.v);
    return mine.k == kLostRow;
  }
  // The factors for the scores and weights of a key that is made of codes.
  __device__ KeyFactors factors(int key) const {
    return find_key_factors(rows.call, units, rows.sequence, rows.kv_head, key);
  }
  // Decodes the codes, once all lanes' copies have arrived.
  __device__ void expand(Stage<dim>& stage) const {
    if (!has_codes()) return;
    coded().expand(stage.k, [] { __syncwarp(); });
    coded().expand(stage.v, [] { __syncwarp(); });
  }
};

// The first row of a head, of T or of codes.
template <typename T, bool lean>
__device__ const void* first_row(const AttentionCall& call, const HeadRows& of, int kv_head) {
  if (!lean && call.has_codes()) return of.at<const std::uint8_t>(0, 0, kv_head);
  return of.at<const T>(0, 0, kv_head);
}

}  // namespace tessera::cuda::split
