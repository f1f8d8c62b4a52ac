#include "support/cache_stream.h"

#include <algorithm>

#include "support/test_tensor.h"

namespace tessera::test {
namespace {

std::vector<float> rows(std::int64_t t, std::uint64_t what, std::int64_t n) {
  const Array values = random_normal({n}, static_cast<std::uint64_t>(t) * 3 + what);
  return {values.data.begin(), values.data.end()};
}

}  // namespace

TokenRows token_rows(std::int64_t t, std::int64_t heads, std::int64_t kv_heads, std::int64_t dim) {
  return {rows(t, 0, heads * dim), rows(t, 1, kv_heads * dim), rows(t, 2, kv_heads * dim)};
}

void KeptTokens::add() {
  tokens_.push_back(next_++);
  const bool sinks = policy_.kind == CachePolicy::Kind::sinks;
  const std::int64_t n_sink = sinks ? policy_.n_sink : 0;
  if (policy_.kind == CachePolicy::Kind::full) return;
  while (std::ssize(tokens_) > n_sink + policy_.window) tokens_.erase(tokens_.begin() + n_sink);
}

std::vector<std::int64_t> numbers_of(Context& ctx, const Tensor& tensor) {
  // A row of a table may stand for all.
  const bool repeated = tensor.rank == 2 && tensor.strides[0] == 0;
  const std::int64_t rows = repeated ? tensor.shape[0] : 1;
  const std::int64_t n = tensor.numel() / std::max<std::int64_t>(1, rows);
  std::vector<std::int64_t> result;
  const auto read = [&](auto type) {
    std::vector<decltype(type)> host(static_cast<std::size_t>(n));
    copy_bytes(ctx, host.data(), Device{}, tensor.data, tensor.device,
               n * static_cast<std::int64_t>(sizeof(type)));
    for (std::int64_t r = 0; r < rows; ++r) result.insert(result.end(), host.begin(), host.end());
  };
  if (tensor.dtype == DType::i64) {
    read(std::int64_t{});
  } else {
    read(std::int32_t{});
  }
  return result;
}

std::vector<std::int64_t> slots_of(Context& ctx, const CacheStep& step, std::int64_t b,
                                   std::int64_t page_size) {
  const std::vector<std::int64_t> table = numbers_of(ctx, step.pages.table);
  const std::vector<std::int64_t> holes = numbers_of(ctx, step.pages.holes);
  const std::int64_t length = numbers_of(ctx, step.pages.lengths)[b];
  const std::int64_t pages = step.pages.table.shape[1];
  std::vector<std::int64_t> result;
  for (std::int64_t j = 0; j < length; ++j) {
    const std::int64_t slot = j < holes[2 * b] ? j : j + holes[2 * b + 1];
    result.push_back(table[b * pages + slot / page_size] * page_size + slot % page_size);
  }
  return result;
}

}  // namespace tessera::test
