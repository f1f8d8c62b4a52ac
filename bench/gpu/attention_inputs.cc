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
  const auto last = [](const Tensor& x, int dim) {
    return x.slice(dim, x.shape[dim] - 1, x.shape[dim]);
  };
  const auto of_queries = [&](const Tensor& x) {
    return in_f32(ctx, last(last(x, 0), 2).select(0, 0).select(1, 0));
  };
  const auto as_attention = [](const Matrix& x) {
    return x.view.view({1, x.view.shape[0], 1, x.view.shape[1]});
  };
  // A page table may point anywhere, so all pages stay.
  const bool paged = args.pages.defined();
  const auto of_keys = [&](const Tensor& x) { return last(paged ? x : last(x, 0), 2); };
  const auto of_scales = [&](const Tensor& x) { return last(paged ? x : last(x, 0), 1); };

  const Matrix q = of_queries(args.q), found = of_queries(args.out), expected = of_queries(args.q);
  AttentionArgs exact{.q = as_attention(q),
                      .out = as_attention(expected),
                      .mask = args.mask,
                      .rope_on_read = args.rope_on_read};
  if (paged) {
    exact.pages = {.table = last(args.pages.table, 0), .lengths = last(args.pages.lengths, 0)};
    if (args.pages.holes.defined()) exact.pages.holes = last(args.pages.holes, 0);
  }
  Matrix k, v;
  if (args.k_scales.defined()) {  // f32 queries read codes of 8 bits as they are
    exact.k = of_keys(args.k);
    exact.v = of_keys(args.v);
    exact.k_scales = of_scales(args.k_scales);
    exact.v_scales = of_scales(args.v_scales);
  } else {
    const auto converted = [&](const Tensor& x, Matrix& to) {
      const std::int64_t shape[] = {x.shape[0] * x.shape[1], x.shape[3]};
      const std::int64_t strides[] = {x.strides[1], 1};  // also from one page to the next
      to = in_f32(ctx, Tensor(x.data, x.dtype, shape, strides, x.device));
      return to.view.view({x.shape[0], x.shape[1], 1, x.shape[3]});
    };
    exact.k = converted(of_keys(args.k), k);
    exact.v = converted(of_keys(args.v), v);
  }
  attention(ctx, exact);
  return relative_error(ctx, found.view, expected.view);
}

Row row_of(const char* op, const AttentionShape& s, const std::string& mask) {
  return {{"op", op},         {"mask", mask},          {"dtype", name(s.dtype)},
          {"batch", s.batch}, {"S", s.keys},           {"heads", s.heads},
          {"D", s.dim},       {"kv_heads", s.kv_heads}};
}

}  // namespace tessera::bench
