// The arguments of the Hopper attention kernel.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/attention/hopper/tiles.h"

namespace tessera::cuda {

struct HopperCall {
  // [batch, heads, rows, dim] from the outermost in; with pages, [pages, kv_heads, page, dim]
  CUtensorMap q, k, v;
  void* out;
  std::int64_t out_batch_stride, out_row_stride, out_head_stride;
  float* lse;  // null: not wanted
  std::int64_t lse_batch_stride, lse_head_stride, lse_row_stride;
  int batch, heads, group, dim, n_q, n_k;
  // Key j is seen from position p where -left <= j - p <= right (-1: open), and below n_sink.
  int left, right, n_sink;
  float exponent_scale;  // exponent of 2 = exponent_scale * (q k)

  // Row tiles, in the order in which blocks take them: by section of heads whose keys and values
  // fit into the L2 cache together. Within a section, from the last rows, which see most keys under
  // a causal mask, to the first, or in a pattern's own order.
  int row_tiles, section_heads, items;
  int* counters;  // [2], zero before and after: items dealt out, blocks done

  // Of a pattern: row r of blocks sees blocks indices[offsets[r]] .. indices[offsets[r + 1] - 1] of
  // keys, in rising order.
  const std::int64_t* offsets;
  const std::int32_t* indices;
  const std::int32_t* longest_first;  // rows of blocks in the order of work; null: the last first
  int block_rows, block_keys;         // tiles of a block

  // Of a ragged or paged batch; null otherwise. n_q and n_k are then the rows of q and the most
  // keys of a sequence, row_tiles is the most tiles of all sequences, and batch is 1.
  const std::int32_t *q_offsets, *k_offsets, *lengths, *page_table;
  std::int64_t table_stride;
  int sequences;
  int page_size, box_rows;  // rows of keys in one copy: they lie in one page
  int few_rows;             // sequences with up to this many rows are left to another kernel
};

}  // namespace tessera::cuda
