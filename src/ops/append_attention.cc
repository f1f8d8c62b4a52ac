#include "tessera/append_attention.h"

#include <algorithm>
#include <cstdint>

#include "core/build_config.h"
#include "cpu/attention/attention.h"
#include "cpu/elementwise/rotary_append.h"
#include "cuda/attention/append.h"
#include "cuda/attention/attention.h"
#include "ops/attention_args.h"
#include "ops/op_scope.h"
#include "ops/rotary_append_args.h"

namespace tessera {
namespace {

bool is_same_view(const Tensor& a, const Tensor& b) {
  if (a.data != b.data || a.dtype != b.dtype || a.rank != b.rank) return false;
  for (int d = 0; d < a.rank; ++d) {
    if (a.shape[d] != b.shape[d] || (a.shape[d] > 1 && a.strides[d] != b.strides[d])) return false;
  }
  return true;
}

// Whether q [batch, n_q, heads, dim] has the rows of tokens [batch * n_q, heads, dim], in order.
bool has_rows_of(const Tensor& q, const Tensor& tokens) {
  const std::int64_t batch = q.shape[0], n_q = q.shape[1];
  if (q.data != tokens.data || q.dtype != tokens.dtype || tokens.shape[0] != batch * n_q)
    return false;
  if (q.shape[2] != tokens.shape[1] || q.shape[3] != tokens.shape[2]) return false;
  return (n_q <= 1 || q.strides[1] == tokens.strides[0]) &&
         (batch <= 1 || q.strides[0] == n_q * tokens.strides[0]) &&
         (q.shape[2] <= 1 || q.strides[2] == tokens.strides[1]);
}

void check_append_attention(const OpScope& op, const AppendAttentionArgs& args) {
  const RotaryAppendArgs& append = args.append;
  const AttentionArgs& attention = args.attention;
  check_rotary_append(op, append);
  check_attention(op, attention);
  op.require(attention.pages.defined(), "attention.pages was not given; the cache has pages");
  op.require(is_same_view(attention.k, append.k_pages) && is_same_view(attention.v, append.v_pages),
             "attention.k {} and attention.v {} must be append.k_pages {} and append.v_pages {}",
             attention.k, attention.v, append.k_pages, append.v_pages);
  op.require(is_same_view(attention.k_scales, append.k_scales) &&
                 is_same_view(attention.v_scales, append.v_scales),
             "the scales of attention must be those of append");
  op.require(has_rows_of(attention.q, append.q_out),
             "attention.q {} must have the rows of append.q_out {}, [batch, n_q, heads, dim]",
             attention.q, append.q_out);
  op.no_overlap("attention.out", attention.out, "append.q", append.q);
  op.no_overlap("attention.out", attention.out, "append.k", append.k);
  op.no_overlap("attention.out", attention.out, "append.v", append.v);
}

std::int64_t append_attention_scratch_bytes(Context& ctx, const AppendAttentionArgs& args) {
  if (ctx.device().is_cpu()) {  // one after the other
    return std::max(rotary_append_scratch_bytes(ctx, args.append),
                    cpu::attention_scratch_bytes(ctx, args.attention));
  }
  if constexpr (kHaveCuda) return cuda::attention_scratch_bytes(ctx, args.attention);
  return 0;
}

OpCost append_attention_cost(const AppendAttentionArgs& args) {
  const AttentionArgs& attention = args.attention;
  const OpCost append = rotary_append_cost(args.append);
  const std::int64_t scale_bytes = attention.k_scales.defined() ? sizeof(float) : 0;
  const std::int64_t row_bytes = attention.k.shape[3] * size_of(attention.k.dtype) + scale_bytes;
  const std::int64_t read = 2 * key_rows(attention) * row_bytes;
  return {append.bytes + read + attention.out.bytes() + attention.lse.bytes(),
          append.flops + 4 * attention.q.shape[3] * visible_pairs(attention)};
}

}  // namespace

void append_attention(Context& ctx, const AppendAttentionArgs& args) {
  const OpScope op(ctx, "append_attention");
  check_append_attention(op, args);
  if (op.only_counts([&] { return append_attention_scratch_bytes(ctx, args); })) return;
  op.run([&] { return describe(args.attention); },
         [&] {
           check_rotary_append_values(op, ctx, args.append);
           cpu::rotary_append(ctx, args.append);
           return cpu::attention(ctx, args.attention);
         },
         [&] { return cuda::append_attention(ctx, args); },
         [&] { return append_attention_cost(args); });
}

}  // namespace tessera
