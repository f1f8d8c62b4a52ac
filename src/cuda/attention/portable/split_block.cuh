// A block of the split kernel (split.cuh): what it has in shared memory, which keys are its own,
// and how they get there.
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

namespace tessera::cuda::split {

inline constexpr int kThreads = 32 * kWarps, kRows = static_cast<int>(kFewRows);

__device__ inline int warp_of_block() { return static_cast<int>(threadIdx.x) / 32; }

// One step of one warp.
template <int dim>
struct Stage {
  unsigned char k[kStepKeys * PaddedRows<dim>::kRowBytes];
  unsigned char v[kStepKeys * PaddedRows<dim>::kRowBytes];
};

// A part of a sequence's page table. A ring is filled step by step: each would wait for its entry
// of the table before it can ask for its keys.
struct PageList {
  static constexpr int kMost = 256;
  std::uint32_t first;  // in the table
  std::int32_t pages[kMost];

  // All threads call it. Entries up to `last` are wanted.
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

template <int dim>
struct alignas(16) Shared {
  unsigned char q[kRows * PaddedRows<dim>::kRowBytes];
  float largest[kWarps][kRows], sum[kWarps][kRows];
  KeyTileLoop loop;
  PageList pages;

  // Behind it: the warps' rings and, when all keys have been seen, their results.
  __device__ Stage<dim>* ring(int stages) {
    return reinterpret_cast<Stage<dim>*>(this + 1) + warp_of_block() * stages;
  }
  __device__ float* out(int warp, int row) {
    return reinterpret_cast<float*>(this + 1) + (warp * kRows + row) * dim;
  }
  // Behind the rings: the turns of new tokens.
  __device__ CosSin* turns(int stages) {
    return reinterpret_cast<CosSin*>(reinterpret_cast<Stage<dim>*>(this + 1) + kWarps * stages);
  }
};

template <int dim>
constexpr int shared_bytes(int stages, int turns) {
  const int rings = kWarps * stages * static_cast<int>(sizeof(Stage<dim>)) + turns * 8;
  const int results = kWarps * kRows * dim * 4;
  return static_cast<int>(sizeof(Shared<dim>)) + std::max(rings, results);
}

// Steps on their way in a warp: as many as let `sharing` blocks be on a multiprocessor, whose
// shared memory is hardly more than the most that one block may have; at least two if one block can
// have them. A warp that has fewer steps than that needs no more.
template <int dim>
constexpr int stages_for(std::int64_t most_bytes, int sharing, int steps_of_warp) {
  constexpr int kMost = 4, kReserved = 1024;  // the system's part of a block
  int stages = 1;
  const auto fits = [&](std::int64_t bytes) { return shared_bytes<dim>(stages + 1, 0) <= bytes; };
  while (stages < std::min(kMost, steps_of_warp) &&
         fits(stages == 1 ? most_bytes : most_bytes / sharing - kReserved)) {
    ++stages;
  }
  return stages;
}

// Waits until at most `left` groups are under way, of up to three.
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

// The steps of a sequence: those of the sinks, if any, then those of the band.
struct Steps {
  int sink_steps, begin, count;

  __device__ explicit Steps(const KeyTileLoop& loop) {
    sink_steps = (loop.sinks + kStepKeys - 1) / kStepKeys;
    begin = std::max(loop.begin / kStepKeys, sink_steps);
    count = sink_steps + std::max(0, (loop.end + kStepKeys - 1) / kStepKeys - begin);
  }
  // The first key of step i.
  __device__ int key(int i) const {
    return kStepKeys * (i < sink_steps ? i : begin + i - sink_steps);
  }
};

// A block's part of the work.
struct Part {
  QueryRows rows;
  Steps steps;
  int begin, end;  // of the steps
};

// The steps of one warp: every fourth of the block's steps that some row sees. Lean: there is no
// pattern of blocks, and all are seen.
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

// Starts the copies of steps. Lean: is_lean(), no pattern of blocks, and rows are copied in
// vectors. Append: the keys of new tokens do not come from their pages.
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
  __device__ void queries(unsigned char* to) const {
    const AttentionCall& call = rows.call;
    load_queries<dim, kRows, kThreads, T>(to, call.dim, in_vectors(), [&](int r) {
      return r < rows.size
                 ? call.query_row<const T>(call.q, rows.sequence, rows.query(r), rows.head(r))
                 : nullptr;
    });
  }
  __device__ std::uint32_t page_at(std::uint32_t index) const {
    const AttentionCall& call = rows.call;
    return list.page(call.page_table + rows.sequence.index * call.table_stride, index);
  }
  // Where the step's keys are neighbours: all of them exist, in one page that is there. Then one
  // address is enough, which saves half of the instructions of a step.
  __device__ bool copy_neighbours(int k0, Stage<dim>& stage) const {
    const SmallSequence& s = rows.sequence;
    if (k0 + kStepKeys > (append ? fresh.first() : s.n_k)) return false;
    auto batch = static_cast<std::uint32_t>(s.k_batch);
    auto row = static_cast<std::uint32_t>(s.k_begin + k0);
    if (rows.call.page_table != nullptr) {
      if (k0 < s.hole_begin && k0 + kStepKeys > s.hole_begin) return false;
      const std::uint32_t slot = page_slot(s, k0), page = slot / units.page_size;
      row = slot - page * units.page_size;
      if (row + kStepKeys > units.page_size) return false;
      batch = page_at(page);
      if (batch >= static_cast<std::uint32_t>(rows.call.pool_pages)) return false;
    }
    copies.neighbours(stage.k, static_cast<const T*>(k), batch * units.k_batch + row * units.k_row,
                      units.k_row);
    copies.neighbours(stage.v, static_cast<const T*>(v), batch * units.v_batch + row * units.v_row,
                      units.v_row);
    return true;
  }
  // True if the lane's key is lost.
  __device__ bool step(int k0, Stage<dim>& stage) const {
    if (lean && copy_neighbours(k0, stage)) return false;
    // Of the lane's key; two lanes have each.
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
  // What scores and weights of a key are multiplied by, where it is made of codes.
  __device__ KeyFactors factors(int key) const {
    return find_key_factors(rows.call, units, rows.sequence, rows.kv_head, key);
  }
  // Codes become numbers, when all lanes' copies have landed.
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
