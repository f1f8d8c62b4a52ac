#include "attention_inputs.h"

namespace tessera::bench {
namespace {

// A [rows, cols] matrix as [batch, tokens, heads, dim].
Tensor as_heads(const Matrix& matrix, std::int64_t batch, std::int64_t heads, std::int64_t dim) {
  return matrix.view.view({batch, matrix.view.shape[0] / batch, heads, dim});
}

}  // namespace

AttentionTensors make_tensors(const Noise& noise, const AttentionShape& s, std::uint32_t seed) {
  const auto make = [&](std::int64_t tokens, std::int64_t heads, std::uint32_t n) {
    return noise.matrix(s.dtype, s.batch * tokens, heads * s.dim, 4 * seed + n);
  };
  return {.q = make(s.queries, s.heads, 0),
          .k = make(s.keys, s.kv_heads, 1),
          .v = make(s.keys, s.kv_heads, 2),
          .out = make(s.queries, s.heads, 3)};
}

AttentionArgs args_of(const AttentionTensors& t, const AttentionShape& s, const Mask& mask) {
  return {.q = as_heads(t.q, s.batch, s.heads, s.dim),
          .k = as_heads(t.k, s.batch, s.kv_heads, s.dim),
          .v = as_heads(t.v, s.batch, s.kv_heads, s.dim),
          .out = as_heads(t.out, s.batch, s.heads, s.dim),
          .mask = mask};
}

double error_of(Context& ctx, const AttentionArgs& args) {
  const auto last_head = [&](const Tensor& x) {
    return in_f32(ctx, x.select(0, x.shape[0] - 1).select(1, x.shape[2] - 1));
  };
  const auto as_attention = [](const Matrix& x) {
    return x.view.view({1, x.view.shape[0], 1, x.view.shape[1]});
  };
  const Matrix q = last_head(args.q), k = last_head(args.k), v = last_head(args.v);
  const Matrix found = last_head(args.out), expected = last_head(args.out);
  attention(ctx, {.q = as_attention(q),
                  .k = as_attention(k),
                  .v = as_attention(v),
                  .out = as_attention(expected),
                  .mask = args.mask});
  return relative_error(ctx, found.view, expected.view);
}

Row row_of(const char* op, const AttentionShape& s, const std::string& mask) {
  return {{"op", op},         {"mask", mask},          {"dtype", name(s.dtype)},
          {"batch", s.batch}, {"S", s.keys},           {"heads", s.heads},
          {"D", s.dim},       {"kv_heads", s.kv_heads}};
}

}  // namespace tessera::bench
