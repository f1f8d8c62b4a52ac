// Calls of append_attention() for tests: a few numbers describe a step of a batch.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/kv_append.h"
#include "reference/test_tensor.h"
#include "tessera/append_attention.h"

namespace tessera::test {

struct AppendCase {
  std::int64_t n_q = 1, heads = 4, kv_heads = 2, dim = 64, dims = 64, page = 16;
  std::vector<std::int64_t> lengths{37, 130, 1};  // with the new tokens
  std::int64_t hole_begin = 0, hole_size = 0;     // of all that are longer than it begins
  RopeStyle style = RopeStyle::half_split;
  DType dtype = DType::bf16;
  Mask mask = Mask::causal();
  bool rotate_keys = true;
  std::uint64_t seed = 0;  // other numbers of the same kind

  std::int64_t batch() const { return std::ssize(lengths); }
  std::int64_t tokens() const { return batch() * n_q; }
};

// The tensors of one step: a pool in which the rows of the new tokens hold NaN.
struct AppendCall {
  AppendCall(Context& ctx, const AppendCase& c)
      : shape(c),
        pages_each(pages_of(c)),
        table_values(make_table(c)),
        slot_values(make_slots()),
        qkv(ctx, random_normal({c.tokens(), c.heads + 2 * c.kv_heads, c.dim}, c.seed + 1), c.dtype),
        positions(ctx, random_integers({c.tokens()}, c.seed + 2, 0, 4000), DType::i32),
        inv_freq(ctx, frequencies(), DType::f32),
        slots(ctx, slot_values, DType::i32),
        table(ctx, table_values, DType::i32),
        lengths(ctx, counts(), DType::i32),
        holes(ctx, make_holes(), DType::i32),
        k_pages(ctx, make_pool(c.seed + 3), c.dtype),
        v_pages(ctx, make_pool(c.seed + 4), c.dtype),
        q_out(TestTensor::poisoned(ctx, {c.tokens(), c.heads, c.dim}, c.dtype)),
        out(TestTensor::poisoned(ctx, {c.batch(), c.n_q, c.heads, c.dim}, c.dtype)) {
    const Tensor all = qkv.view();
    args.append = {.q = all.slice(1, 0, c.heads),
                   .k = all.slice(1, c.heads, c.heads + c.kv_heads),
                   .v = all.slice(1, c.heads + c.kv_heads, c.heads + 2 * c.kv_heads),
                   .positions = positions,
                   .rope = {inv_freq, c.style},
                   .rotate_keys = c.rotate_keys,
                   .slots = slots,
                   .k_pages = k_pages,
                   .v_pages = v_pages,
                   .q_out = q_out};
    args.attention = {.q = q_out.view().view({c.batch(), c.n_q, c.heads, c.dim}),
                      .k = k_pages,
                      .v = v_pages,
                      .out = out,
                      .mask = c.mask,
                      .pages = {.table = table, .lengths = lengths, .holes = holes}};
    if (!c.rotate_keys) args.attention.rope_on_read = {inv_freq, c.style};
  }

  std::int64_t hole_of(std::int64_t b) const {
    return shape.lengths[static_cast<std::size_t>(b)] > shape.hole_begin ? shape.hole_size : 0;
  }
  static std::int64_t pages_of(const AppendCase& c) {
    std::int64_t most = 1;
    for (const std::int64_t n : c.lengths) {
      most = std::max(most, (n + c.hole_size + c.page - 1) / c.page);
    }
    return most;
  }
  // Every other page of the pool, from the last down.
  Array make_table(const AppendCase& c) const {
    Array result({c.batch(), pages_each});
    for (std::int64_t i = 0; i < c.batch() * pages_each; ++i) {
      result.data[static_cast<std::size_t>(i)] =
          static_cast<double>(2 * (c.batch() * pages_each - 1 - i));
    }
    return result;
  }
  Array make_slots() const {
    Array result({shape.tokens()});
    for (std::int64_t t = 0; t < shape.tokens(); ++t) {
      const std::int64_t b = t / shape.n_q, n = shape.lengths[static_cast<std::size_t>(b)];
      const std::int64_t key = n - shape.n_q + t % shape.n_q;
      const std::int64_t slot = key < shape.hole_begin ? key : key + hole_of(b);
      result.at(t) = key < 0
                         ? -1
                         : table_values.at(b, slot / shape.page) * static_cast<double>(shape.page) +
                               static_cast<double>(slot % shape.page);
    }
    return result;
  }
  Array counts() const {
    Array result({shape.batch()});
    for (std::int64_t b = 0; b < shape.batch(); ++b) {
      result.at(b) = static_cast<double>(shape.lengths[static_cast<std::size_t>(b)]);
    }
    return result;
  }
  Array make_holes() const {
    Array result({shape.batch(), 2});
    for (std::int64_t b = 0; b < shape.batch(); ++b) {
      result.at(b, 0) = static_cast<double>(shape.hole_begin);
      result.at(b, 1) = static_cast<double>(hole_of(b));
    }
    return result;
  }
  Array make_pool(std::uint64_t seed) const {
    Array pool = random_normal(
        {2 * shape.batch() * pages_each, shape.page, shape.kv_heads, shape.dim}, seed);
    return reference::kv_append(Array({shape.tokens(), shape.kv_heads, shape.dim}, NAN),
                                stored_slots(), pool);
  }
  // A token without a slot goes to a page that no table names.
  Array stored_slots() const {
    Array result = slot_values;
    for (double& slot : result.data) slot = slot < 0 ? static_cast<double>(shape.page) : slot;
    return result;
  }
  Array frequencies() const {
    Array result({shape.dims / 2});
    const std::vector<float> values = rope_inv_freq(shape.dims);
    result.data.assign(values.begin(), values.end());
    return result;
  }

  AppendCase shape;
  std::int64_t pages_each;
  Array table_values, slot_values;
  TestTensor qkv, positions, inv_freq, slots, table, lengths, holes, k_pages, v_pages, q_out, out;
  AppendAttentionArgs args{};
};

}  // namespace tessera::test
