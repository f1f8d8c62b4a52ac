// Backward around the ring. With the out and lse of the whole sequence, the gradient of a part of
// the keys is a call of attention_backward() over that part. d_q stays here and grows; d_k and d_v
// travel with their keys:
//
//   block of rank o:   o -> o + 1 -> ... -> o - 1 -> o     each rank adds its part
#include "core/workspace.h"
#include "modules/ring.h"
#include "ops/partial_sums.h"
#include "tessera/convert.h"

namespace tessera {
namespace {

// Adds the parts of d_q, d_k and d_v that come from the current block.
void add_gradients(Context& ctx, const RingAttentionBackwardArgs& args, const RingCall& call,
                   std::int64_t q0, std::int64_t k0, const Ring& ring, const Tensor& d_q,
                   const Ring& gradients) {
  const RingAttentionArgs& forward = args.forward;
  const std::int64_t n_q = call.q.size(), n_k = call.k.size(), batch = forward.q.size(0);
  const auto of_queries = [&](const Tensor& t) { return t.slice(1, q0, q0 + n_q); };
  const std::int64_t dim = forward.q.size(3), kv_heads = forward.k.size(2);
  Workspace::Frame frame(ctx.workspace());
  const Tensor part_q = frame.take(forward.q.dtype, {batch, n_q, forward.q.size(2), dim});
  const Tensor part_k = frame.take(forward.k.dtype, {batch, n_k, kv_heads, dim});
  const Tensor part_v = frame.take(forward.v.dtype, {batch, n_k, kv_heads, dim});
  AttentionBackwardArgs part;
  part.forward = {.q = of_queries(forward.q),
                  .k = ring.keys(k0, k0 + n_k),
                  .v = ring.values(k0, k0 + n_k),
                  .out = of_queries(forward.out),
                  .lse = forward.lse.slice(2, q0, q0 + n_q),
                  .mask = call.mask,
                  .scale = forward.scale,
                  .softcap = forward.softcap};
  part.d_out = of_queries(args.d_out);
  part.d_q = part_q;
  part.d_k = part_k;
  part.d_v = part_v;
  part.deterministic = args.deterministic;
  attention_backward(ctx, part);
  add_partial(ctx, part_q, of_queries(d_q));
  add_partial(ctx, part_k, gradients.keys(k0, k0 + n_k));
  add_partial(ctx, part_v, gradients.values(k0, k0 + n_k));
}

}  // namespace

void ring_attention_backward(Context& ctx, Communicator& ranks,
                             const RingAttentionBackwardArgs& args) {
  const RingAttentionArgs& forward = args.forward;
  check_ring("ring_attention_backward", ranks, forward);
  const RingLayout layout = ring_layout(forward.tokens, ranks.size(), forward.mask);
  const std::int64_t rows = forward.q.size(1);
  Workspace::Frame frame(ctx.workspace());
  Ring ring(ctx, ranks, frame, layout, forward.k, forward.v, forward.k.dtype);
  const Tensor d_q =
      frame.take(DType::f32, {forward.q.size(0), rows, forward.q.size(2), forward.q.size(3)});
  fill_zeros(ctx, d_q);
  // Begins as zeros: no rows of this rank are copied into it.
  const Tensor none = forward.k.slice(1, 0, 0);
  Ring gradients(ctx, ranks, frame, layout, none, none, DType::f32);
  fill_zeros(ctx, gradients.block());
  for (int step = 0; step < ranks.size(); ++step) {
    if (step + 1 < ranks.size()) ring.start();
    for_each_call(layout, ranks.rank(), ring.owner(), forward.mask,
                  [&](const RingCall& call, std::int64_t q0, std::int64_t k0) {
                    add_gradients(ctx, args, call, q0, k0, ring, d_q, gradients);
                  });
    if (step + 1 < ranks.size()) ring.turn();
    if (ranks.size() == 1) break;
    gradients.start();  // after the last step they return to their rank
    gradients.turn();
  }
  if (rows == 0) return;
  convert(ctx, {.x = d_q, .out = args.d_q});
  convert(ctx, {.x = gradients.keys(0, rows), .out = args.d_k});
  convert(ctx, {.x = gradients.values(0, rows), .out = args.d_v});
}

}  // namespace tessera
