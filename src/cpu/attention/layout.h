// Where the rows of an attention call are in memory. Dense, ragged and paged batches all become a
// list of sequences, and one pointer for each row of a tile.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/sequence.h"
#include "tessera/attention.h"

namespace tessera::cpu {

inline std::int64_t sequence_count(const AttentionArgs& args) {
  return args.q_offsets.defined() ? args.q_offsets.shape[0] - 1 : args.q.shape[0];
}

inline Hole hole_of(const PageTable& pages, std::int64_t sequence) {
  if (!pages.holes.defined()) return {};
  const std::int32_t* hole =
      pages.holes.ptr<const std::int32_t>() + sequence * pages.holes.strides[0];
  return {hole[0], hole[1]};
}

// Reads offsets, lengths and holes, which must have been checked.
inline Sequence sequence_of(const AttentionArgs& args, std::int64_t index) {
  Sequence s{index, index, 0, args.q.shape[1], index, 0, args.k.shape[1]};
  if (args.q_offsets.defined()) {
    const std::int32_t* offsets = args.q_offsets.ptr<const std::int32_t>();
    s.q_batch = 0;
    s.q_begin = offsets[index];
    s.n_q = offsets[index + 1] - offsets[index];
  }
  if (args.k_offsets.defined()) {
    const std::int32_t* offsets = args.k_offsets.ptr<const std::int32_t>();
    s.k_batch = 0;
    s.k_begin = offsets[index];
    s.n_k = offsets[index + 1] - offsets[index];
  }
  if (args.pages.defined()) {
    s.n_k = args.pages.lengths.ptr<const std::int32_t>()[index];
    s.hole = hole_of(args.pages, index);
  }
  return s;
}

// Query i of one head, in q, out or a gradient of either.
template <typename T>
T* query_row(const Tensor& tensor, const Sequence& s, std::int64_t i, std::int64_t head) {
  return tensor.ptr<T>() + s.q_batch * tensor.strides[0] + (s.q_begin + i) * tensor.strides[1] +
         head * tensor.strides[2];
}

// The element of lse for query i of one head.
inline float* lse_at(const Tensor& lse, const Sequence& s, std::int64_t i, std::int64_t head) {
  return lse.ptr<float>() + s.q_batch * lse.strides[0] + head * lse.strides[1] +
         (s.q_begin + i) * lse.strides[2];
}

// rows[j] = key k0 + j of one head, for j in [0, n), in k, v or a gradient of either.
template <typename T>
void point_at_keys(const AttentionArgs& args, const Tensor& tensor, const Sequence& s,
                   std::int64_t head, std::int64_t k0, std::int64_t n, T** rows) {
  T* base = tensor.ptr<T>() + head * tensor.strides[2];
  if (!args.pages.defined()) {
    base += s.k_batch * tensor.strides[0] + (s.k_begin + k0) * tensor.strides[1];
    for (std::int64_t j = 0; j < n; ++j) rows[j] = base + j * tensor.strides[1];
    return;
  }
  const Tensor& table = args.pages.table;
  const std::int32_t* pages = table.ptr<const std::int32_t>() + s.index * table.strides[0];
  const std::int64_t page_size = tensor.shape[1];
  for (std::int64_t j = 0; j < n;) {
    const std::int64_t key = k0 + j, slot = s.hole.slot(key);
    std::int64_t row = slot % page_size;
    // Neighbouring rows, up to the end of the page or up to the hole.
    std::int64_t end = std::min(n, j + page_size - row);
    if (key < s.hole.begin) end = std::min(end, s.hole.begin - k0);
    T* first = base + pages[slot / page_size] * tensor.strides[0];
    for (; j < end; ++j, ++row) rows[j] = first + row * tensor.strides[1];
  }
}

}  // namespace tessera::cpu
