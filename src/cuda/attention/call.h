// An attention call as kernels see it: plain numbers and device pointers. Dense, ragged and paged
// batches all become a list of sequences (core/sequence.h), and one pointer for each row.
//
// Offsets, lengths and page numbers are in device memory and have not been checked. They are
// clamped: whatever their values, nothing outside the tensors is read or written.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/host_device.h"
#include "core/mask_view.h"
#include "core/sequence.h"
#include "tessera/attention.h"

namespace tessera::cuda {

// q, k, v, out or a gradient of one: [batch, rows, heads, dim], dim contiguous.
struct HeadRows {
  void* data = nullptr;
  std::int64_t batch_stride = 0, row_stride = 0, head_stride = 0;

  HeadRows() = default;
  explicit HeadRows(const Tensor& tensor)
      : data(tensor.data),
        batch_stride(tensor.strides[0]),
        row_stride(tensor.strides[1]),
        head_stride(tensor.strides[2]) {}

  template <typename T>
  TESSERA_HOST_DEVICE T* at(std::int64_t batch, std::int64_t row, std::int64_t head) const {
    return static_cast<T*>(data) + batch * batch_stride + row * row_stride + head * head_stride;
  }
};

// The scales of 8-bit keys or values: [batch, heads, rows], rows contiguous.
struct KeyScales {
  const float* data = nullptr;
  std::int64_t batch_stride = 0, head_stride = 0;

  KeyScales() = default;
  explicit KeyScales(const Tensor& scales)
      : data(scales.ptr<const float>()),
        batch_stride(scales.strides[0]),
        head_stride(scales.strides[1]) {}

  TESSERA_HOST_DEVICE float at(std::int64_t batch, std::int64_t row, std::int64_t head) const {
    return data[batch * batch_stride + head * head_stride + row];
  }
};

struct AttentionCall {
  AttentionCall(const AttentionArgs& args, const MaskView& mask_on_device);

  DType dtype;
  DType stored;  // of k and v: dtype, or 8 bits
  HeadRows q, k, v, out;
  KeyScales k_scales, v_scales;  // of 8 bits
  float* lse;                    // null: not wanted
  std::int64_t lse_strides[3];
  MaskView mask;

  std::int64_t sequences, n_q, n_k;  // rows of q and k in a batch; n_k of a full page table
  std::int64_t heads, kv_heads, group;
  int dim;
  const std::int32_t *q_offsets, *k_offsets;  // null: dense
  const std::int32_t *page_table, *lengths;   // null: not paged
  const std::int32_t* holes;                  // null: none
  std::int64_t table_stride, hole_stride, page_size, pool_pages;

  // exponent of 2 = q_factor * (q k), or score_factor * tanh(q_factor * (q k)) with a softcap.
  float scale, q_factor, score_factor;
  bool capped, dropping;
  float kept_factor;  // 1 / (1 - p)
  std::uint32_t dropout_threshold;
  std::uint64_t seed;

  const float* inv_freq;  // null: keys are used as they are
  std::int64_t pairs;
  bool half_split;

  TESSERA_HOST_DEVICE Sequence sequence(std::int64_t index) const {
    Sequence s{index, index, 0, n_q, index, 0, n_k, {}};
    if (q_offsets != nullptr) {
      s.q_batch = 0;
      s.q_begin = clamped(q_offsets[index], 0, n_q);
      s.n_q = clamped(q_offsets[index + 1], s.q_begin, n_q) - s.q_begin;
    }
    if (k_offsets != nullptr) {
      s.k_batch = 0;
      s.k_begin = clamped(k_offsets[index], 0, n_k);
      s.n_k = clamped(k_offsets[index + 1], s.k_begin, n_k) - s.k_begin;
    }
    if (lengths != nullptr) s.n_k = clamped(lengths[index], 0, n_k);
    if (holes != nullptr) {
      s.hole.begin = clamped(holes[index * hole_stride], 0, n_k);
      s.hole.size = clamped(holes[index * hole_stride + 1], 0, n_k);
      // Keys after the hole end with the last page.
      s.n_k = std::min(s.n_k, std::max(s.hole.begin, n_k - s.hole.size));
    }
    return s;
  }

  template <typename T>
  TESSERA_HOST_DEVICE T* query_row(const HeadRows& rows, const Sequence& s, std::int64_t i,
                                   std::int64_t head) const {
    return rows.at<T>(s.q_batch, s.q_begin + i, head);
  }
  // Null if the page table names a page that is not in the pool.
  template <typename T>
  TESSERA_HOST_DEVICE T* key_row(const HeadRows& rows, const Sequence& s, std::int64_t j,
                                 std::int64_t kv_head) const {
    if (page_table == nullptr) return rows.at<T>(s.k_batch, s.k_begin + j, kv_head);
    const std::int64_t slot = s.hole.slot(j);
    const std::int64_t page = page_table[s.index * table_stride + slot / page_size];
    if (page < 0 || page >= pool_pages) return nullptr;
    return rows.at<T>(page, slot % page_size, kv_head);
  }
  // 1 if the row is null.
  TESSERA_HOST_DEVICE float key_scale(const KeyScales& scales, const Sequence& s, std::int64_t j,
                                      std::int64_t kv_head) const {
    if (page_table == nullptr) return scales.at(s.k_batch, s.k_begin + j, kv_head);
    const std::int64_t slot = s.hole.slot(j);
    const std::int64_t page = page_table[s.index * table_stride + slot / page_size];
    return page < 0 || page >= pool_pages ? 1.f : scales.at(page, slot % page_size, kv_head);
  }
  // Keys and values are codes of 8 bits.
  TESSERA_HOST_DEVICE bool has_codes() const { return stored != dtype; }
  TESSERA_HOST_DEVICE float* lse_at(const Sequence& s, std::int64_t i, std::int64_t head) const {
    return lse + s.q_batch * lse_strides[0] + head * lse_strides[1] +
           (s.q_begin + i) * lse_strides[2];
  }

 private:
  TESSERA_HOST_DEVICE static std::int64_t clamped(std::int64_t x, std::int64_t low,
                                                  std::int64_t high) {
    return std::min(std::max(x, low), high);
  }
};

struct AttentionGradients {
  HeadRows d_out, d_q, d_k, d_v;
  float* delta;  // [batch, n_q, heads] scratch: rowsum(d_out * out)
};

// ---- the work, in tiles -------------------------------------------------------------------------
//
// The query heads that share a key head share its tiles. With `group` such heads, row r of a
// sequence is query r / group of head kv_head * group + r % group.

struct Tile {
  Sequence sequence;
  std::int64_t kv_head;
  std::int64_t begin;  // the first row, or key, of the sequence
  int size;
};

TESSERA_HOST_DEVICE constexpr std::int64_t tiles_of(std::int64_t n, std::int64_t tile_size) {
  return (n + tile_size - 1) / tile_size;
}

// The largest possible number of tiles, for all heads of k. Each sequence of a ragged batch ends
// with at most one tile that is not full.
inline std::int64_t most_row_tiles(const AttentionCall& call, std::int64_t tile_size) {
  const std::int64_t rows = call.n_q * call.group;
  return call.kv_heads * (call.q_offsets != nullptr ? rows / tile_size + call.sequences
                                                    : call.sequences * tiles_of(rows, tile_size));
}
inline std::int64_t most_key_tiles(const AttentionCall& call, std::int64_t tile_size) {
  return call.kv_heads * (call.k_offsets != nullptr
                              ? call.n_k / tile_size + call.sequences
                              : call.sequences * tiles_of(call.n_k, tile_size));
}

// Finds tile `item`, where a sequence has count(sequence) rows or keys; false if there are fewer
// tiles.
template <typename Count>
TESSERA_HOST_DEVICE bool find_tile(const AttentionCall& call, std::int64_t item, int tile_size,
                                   Count count, Tile* tile) {
  std::int64_t index = item / call.kv_heads, first = 0;
  if (call.q_offsets == nullptr) {  // all sequences are equally long: no search
    const std::int64_t tiles = tiles_of(count(call.sequence(0)), tile_size);
    first = index / tiles;
    index %= tiles;
  }
  for (std::int64_t b = first; b < call.sequences; ++b) {
    const Sequence s = call.sequence(b);
    const std::int64_t n = count(s), begin = index * tile_size;
    if (begin < n) {
      *tile = {s, item % call.kv_heads, begin,
               static_cast<int>(std::min<std::int64_t>(tile_size, n - begin))};
      return true;
    }
    index -= tiles_of(n, tile_size);
  }
  return false;
}

// ---- the kernels --------------------------------------------------------------------------------

void launch_attention(Context& ctx, const AttentionCall& call);
void launch_attention_backward(Context& ctx, const AttentionCall& call,
                               const AttentionGradients& gradients);

}  // namespace tessera::cuda
