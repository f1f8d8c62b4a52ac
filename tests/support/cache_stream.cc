#include "support/cache_stream.h"

#include <algorithm>
#include <span>

#include "reference/attention.h"
#include "reference/rotary.h"
#include "reference/test_tensor.h"
#include "tessera/kv_append.h"

namespace tessera::test {
namespace {

KvCacheOptions with_shape(KvCacheOptions options, const StreamShape& shape) {
  options.layers = 1;
  options.kv_heads = shape.kv_heads;
  options.head_dim = shape.dim;
  return options;
}

}  // namespace

std::vector<float> token_row(std::int64_t t, std::uint64_t what, std::int64_t n) {
  const Array values = random_normal({n}, static_cast<std::uint64_t>(t) * 3 + what);
  return {values.data.begin(), values.data.end()};
}

AttentionStream::AttentionStream(Context& ctx, const StreamShape& shape,
                                 const KvCacheOptions& options)
    : ctx_(ctx),
      shape_(shape),
      cache_(ctx, with_shape(options, shape)),
      inv_freq_({shape.rope_dims / 2}),
      ids_(static_cast<std::size_t>(options.max_step)),
      q_(DType::f32, {options.max_step, shape.heads, shape.dim}, ctx.device()),
      k_(DType::f32, {options.max_step, shape.kv_heads, shape.dim}, ctx.device()),
      v_(DType::f32, {options.max_step, shape.kv_heads, shape.dim}, ctx.device()),
      out_(DType::f32, {options.max_step, shape.heads, shape.dim}, ctx.device()),
      inv_freq_buffer_(DType::f32, {shape.rope_dims / 2}, ctx.device()) {
  const std::vector<float> inv_freq = rope_inv_freq(shape.rope_dims);
  std::copy(inv_freq.begin(), inv_freq.end(), inv_freq_.data.begin());
  copy_bytes(ctx, inv_freq_buffer_.data(), ctx.device(), inv_freq.data(), Device{},
             inv_freq_buffer_.bytes());
  const struct {
    const Buffer& buffer;
    std::uint64_t what;
    std::int64_t heads;
  } parts[] = {{q_, 0, shape.heads}, {k_, 1, shape.kv_heads}, {v_, 2, shape.kv_heads}};
  for (const auto& [buffer, what, heads] : parts) upload(buffer, 0, options.max_step, what, heads);
}

Tensor AttentionStream::upload(const Buffer& buffer, std::int64_t first, std::int64_t tokens,
                               std::uint64_t what, std::int64_t heads) {
  std::vector<float> rows;
  for (std::int64_t t = first; t < first + tokens; ++t) {
    const std::vector<float> row = token_row(t, what, heads * shape_.dim);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  const Tensor tensor = buffer.tensor(DType::f32, {tokens, heads, shape_.dim});
  copy_bytes(ctx_, tensor.data, tensor.device, rows.data(), Device{}, tensor.bytes());
  return tensor;
}

void AttentionStream::run(std::int64_t tokens) {
  const std::int64_t heads = shape_.heads, kv_heads = shape_.kv_heads, dim = shape_.dim;
  const CacheStep& step =
      cache_.step(ctx_, std::span(ids_).first(static_cast<std::size_t>(tokens)));
  const AttentionGroup& group = step.groups.front();  // a stream is one group
  const Rope rope{inv_freq_buffer_.tensor(DType::f32, {shape_.rope_dims / 2}), shape_.style};
  const Tensor q = q_.tensor(DType::f32, {1, tokens, heads, dim});
  const Tensor k = k_.tensor(DType::f32, {1, tokens, kv_heads, dim});
  rotary(ctx_, {.x = q, .positions = step.positions, .rope = rope, .out = q});
  if (!group.rope_on_read) {
    rotary(ctx_, {.x = k, .positions = step.positions, .rope = rope, .out = k});
  }
  kv_append(ctx_, {.k = k.select(0, 0),
                   .v = v_.tensor(DType::f32, {tokens, kv_heads, dim}),
                   .slots = step.slots,
                   .k_pages = cache_.keys(0),
                   .v_pages = cache_.values(0)});
  const std::int64_t each = tokens / group.sequences;
  attention(ctx_, {.q = q_.tensor(DType::f32, {group.sequences, each, heads, dim}),
                   .k = cache_.keys(0),
                   .v = cache_.values(0),
                   .out = out_.tensor(DType::f32, {group.sequences, each, heads, dim}),
                   .mask = group.mask,
                   .pages = group.pages,
                   .rope_on_read = group.rope_on_read ? rope : Rope{}});
}

Array AttentionStream::step(std::int64_t tokens) {
  const std::int64_t first = cache_.seen();
  upload(q_, first, tokens, 0, shape_.heads);
  upload(k_, first, tokens, 1, shape_.kv_heads);
  upload(v_, first, tokens, 2, shape_.kv_heads);
  run(tokens);
  Array out({tokens, shape_.heads, shape_.dim});
  std::vector<float> values(out.data.size());
  copy_bytes(ctx_, values.data(), Device{}, out_.data(), ctx_.device(),
             static_cast<std::int64_t>(values.size() * sizeof(float)));
  std::copy(values.begin(), values.end(), out.data.begin());
  return out;
}

Array attention_over(const std::vector<std::int64_t>& kept, const StreamShape& shape,
                     const Array& inv_freq) {
  const std::int64_t n = std::ssize(kept);
  const auto rows = [&](std::uint64_t what, std::int64_t heads, std::int64_t from) {
    Array result({1, n - from, heads, shape.dim});
    for (std::int64_t j = from; j < n; ++j) {
      const std::vector<float> row = token_row(kept[j], what, heads * shape.dim);
      std::copy(row.begin(), row.end(), result.data.begin() + (j - from) * heads * shape.dim);
    }
    return result;
  };
  reference::AttentionInputs in;
  in.q = reference::rotary(rows(0, shape.heads, n - 1), Array({1}, static_cast<double>(n - 1)),
                           inv_freq, shape.style);
  in.k = rows(1, shape.kv_heads, 0);
  in.v = rows(2, shape.kv_heads, 0);
  in.inv_freq = inv_freq;
  in.rope_style = shape.style;
  Array out = reference::attention(in).out;
  out.shape = {shape.heads, shape.dim};
  return out;
}

void KeptTokens::add() {
  tokens_.push_back(next_++);
  const bool sinks = policy_.kind == CachePolicy::Kind::sinks;
  const std::int64_t n_sink = sinks ? policy_.n_sink : 0;
  if (policy_.kind == CachePolicy::Kind::full) return;
  while (std::ssize(tokens_) > n_sink + policy_.window) tokens_.erase(tokens_.begin() + n_sink);
}

std::vector<std::int64_t> numbers_of(Context& ctx, const Tensor& tensor) {
  // One row of a table may stand for all rows.
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

std::vector<std::int64_t> slots_of(Context& ctx, const AttentionGroup& group, std::int64_t b,
                                   std::int64_t page_size) {
  const std::vector<std::int64_t> table = numbers_of(ctx, group.pages.table);
  const bool has_holes = group.pages.holes.defined();
  const std::vector<std::int64_t> holes =
      has_holes ? numbers_of(ctx, group.pages.holes) : std::vector<std::int64_t>{};
  const std::int64_t length = numbers_of(ctx, group.pages.lengths)[b];
  const std::int64_t pages = group.pages.table.shape[1];
  std::vector<std::int64_t> result;
  for (std::int64_t j = 0; j < length; ++j) {
    const std::int64_t slot = !has_holes || j < holes[2 * b] ? j : j + holes[2 * b + 1];
    result.push_back(table[b * pages + slot / page_size] * page_size + slot % page_size);
  }
  return result;
}

}  // namespace tessera::test
