#include "support/paged_keys.h"

#include <algorithm>
#include <cmath>

namespace tessera::test {
namespace {

// Scatters 0, 1, 2, ... over the pool without a repetition: the second half first, backwards.
std::int64_t scattered_page(std::int64_t n, std::int64_t pool) {
  return n % 2 == 0 ? pool - 1 - n / 2 : n / 2;
}

}  // namespace

Array array_of(const std::vector<std::int64_t>& numbers) {
  Array result({std::ssize(numbers)});
  std::copy(numbers.begin(), numbers.end(), result.data.begin());
  return result;
}

std::vector<std::int64_t> offsets_of(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> offsets{0};
  for (std::int64_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

Paged::Paged(Context& ctx, std::int64_t page_size, const std::vector<std::int64_t>& key_counts,
             const Array& keys, const Array& values, DType dtype, Layout layout,
             const std::vector<Hole>& holes) {
  const std::int64_t sequences = std::ssize(key_counts), kv_heads = keys.size(2);
  std::int64_t most = 1, used = 0;
  for (std::int64_t b = 0; b < sequences; ++b) {
    const std::int64_t slots = key_counts[b] + (holes.empty() ? 0 : holes[b].size);
    most = std::max(most, (slots + page_size - 1) / page_size + 1);
    used += (slots + page_size - 1) / page_size;
  }
  const std::int64_t pool = used + 3;
  Array k({pool, page_size, kv_heads, keys.size(3)}, NAN), v = k;
  table = Array({sequences, most}, -1000);
  std::int64_t next = 0;
  for (std::int64_t b = 0; b < sequences; ++b) {
    for (std::int64_t j = 0; j < key_counts[b]; ++j) {
      const std::int64_t slot = holes.empty() || j < holes[b].begin ? j : j + holes[b].size;
      double& entry = table.at(b, slot / page_size);
      if (entry < 0) entry = static_cast<double>(scattered_page(next++, pool));
      const auto at = static_cast<std::int64_t>(entry);
      for (std::int64_t h = 0; h < kv_heads; ++h) {
        for (std::int64_t d = 0; d < keys.size(3); ++d) {
          k.at(at, slot % page_size, h, d) = keys.at(b, j, h, d);
          v.at(at, slot % page_size, h, d) = values.at(b, j, h, d);
        }
      }
    }
  }
  if (!holes.empty()) {
    hole_values = Array({sequences, 2});
    for (std::int64_t b = 0; b < sequences; ++b) {
      hole_values.at(b, 0) = static_cast<double>(holes[b].begin);
      hole_values.at(b, 1) = static_cast<double>(holes[b].size);
    }
    hole_tensor.emplace(ctx, hole_values, DType::i32, layout);
  }
  k_pool.emplace(ctx, k, dtype, layout);
  v_pool.emplace(ctx, v, dtype, layout);
  table_tensor.emplace(ctx, table, DType::i32, layout);
  lengths.emplace(ctx, array_of(key_counts), DType::i32);
}

void Paged::put_into(AttentionArgs& args) const {
  args.k = *k_pool;
  args.v = *v_pool;
  args.pages = {*table_tensor, *lengths};
  if (hole_tensor) args.pages.holes = *hole_tensor;
}

}  // namespace tessera::test
