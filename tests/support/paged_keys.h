// Keys and values in a pool of pages, for tests of attention.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "reference/array.h"
#include "reference/test_tensor.h"
#include "tessera/attention.h"

namespace tessera::test {

using reference::Array;

Array array_of(const std::vector<std::int64_t>& numbers);
// 0, then the sums of the first lengths.
std::vector<std::int64_t> offsets_of(const std::vector<std::int64_t>& lengths);

struct Hole {
  std::int64_t begin = 0, size = 0;
};

// A pool of pages in shuffled order. Pages that no sequence uses, and slots after the end of a
// sequence or in its hole, hold NaN; entries of the table that are not used point nowhere.
struct Paged {
  // Sequence b has the first key_counts[b] of keys and values [sequences, keys, kv_heads, dim].
  Paged(Context& ctx, std::int64_t page_size, const std::vector<std::int64_t>& key_counts,
        const Array& keys, const Array& values, DType dtype, Layout layout,
        const std::vector<Hole>& holes = {});

  void put_into(AttentionArgs& args) const;

  Array table, hole_values;
  std::optional<TestTensor> k_pool, v_pool, table_tensor, lengths, hole_tensor;
};

}  // namespace tessera::test
