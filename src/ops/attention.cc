#include "tessera/attention.h"

#include "core/build_config.h"
#include "cpu/attention/attention.h"
#include "cuda/attention/attention.h"
#include "ops/attention_args.h"
#include "ops/op_scope.h"

namespace tessera {
namespace {

std::int64_t attention_scratch_bytes(Context& ctx, const AttentionArgs& args) {
  if (ctx.device().is_cpu()) return cpu::attention_scratch_bytes(ctx, args);
  if constexpr (kHaveCuda) return cuda::attention_scratch_bytes(ctx, args);
  return 0;
}

}  // namespace

void attention(Context& ctx, const AttentionArgs& args) {
  const OpScope op(ctx, "attention");
  check_attention(op, args);
  if (op.only_counts([&] { return attention_scratch_bytes(ctx, args); })) return;
  op.run([&] { return describe(args); }, [&] { return cpu::attention(ctx, args); },
         [&] { return cuda::attention(ctx, args); },
         [&] {
           const std::int64_t scale_bytes = args.k_scales.defined() ? sizeof(float) : 0;
           const std::int64_t row_bytes = args.k.shape[3] * size_of(args.k.dtype) + scale_bytes;
           const std::int64_t kv_bytes = 2 * key_rows(args) * row_bytes;
           // Two products over dim for each pair, a multiplication and an addition each.
           return OpCost{args.q.bytes() + kv_bytes + args.out.bytes() + args.lse.bytes(),
                         4 * args.q.shape[3] * visible_pairs(args)};
         });
}

void attention_backward(Context& ctx, const AttentionBackwardArgs& args) {
  const OpScope op(ctx, "attention_backward");
  AttentionArgs forward = args.forward;
  forward.out.read_only = forward.lse.read_only = false;  // inputs of the backward pass
  check_attention(op, forward);
  op.require(forward.lse.defined(), "lse was not given; attention() writes it on request");
  op.require(forward.k.dtype == forward.q.dtype,
             "k is {} and q is {}; gradients need both in one dtype", name(forward.k.dtype),
             name(forward.q.dtype));
  op.require(!forward.pages.defined(), "pages are for inference; gradients need dense k and v");
  op.require(!forward.rope_on_read.defined(),
             "rope_on_read is for inference; rotate the keys before and use plain attention");
  op.input("d_out", args.d_out, {forward.q.dtype});
  op.same_shape("d_out", args.d_out, "out", forward.out);
  const struct {
    const char* name;
    const Tensor& gradient;
    const char* like_name;
    const Tensor& like;
  } gradients[] = {{"d_q", args.d_q, "q", forward.q},
                   {"d_k", args.d_k, "k", forward.k},
                   {"d_v", args.d_v, "v", forward.v}};
  for (const auto& [name, gradient, like_name, like] : gradients) {
    op.output(name, gradient, {like.dtype});
    op.same_shape(name, gradient, like_name, like);
  }
  for (const auto& [name, gradient, like_name, like] : gradients) {
    for (const auto& [other_name, other, other_like_name, other_like] : gradients) {
      op.no_overlap(name, gradient, other_like_name, other_like);
      if (&other != &gradient) op.no_overlap(name, gradient, other_name, other);
    }
    op.no_overlap(name, gradient, "out", forward.out);
    op.no_overlap(name, gradient, "lse", forward.lse);
    op.no_overlap(name, gradient, "d_out", args.d_out);
  }
  op.run([&] { return describe(forward); },
         [&] {
           cpu::attention_backward(ctx, args);
           return "cpu";
         },
         [&] { return cuda::attention_backward(ctx, args); },
         [&] {
           // q, out, d_out and d_q; k, v, d_k and d_v. Five products over dim for each pair:
           // scores, dP, dQ, dK, dV.
           return OpCost{4 * forward.q.bytes() + 4 * forward.k.bytes() + forward.lse.bytes(),
                         10 * forward.q.shape[3] * visible_pairs(forward)};
         });
}

}  // namespace tessera
