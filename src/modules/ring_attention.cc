// Forward around the ring: each call gives a partial result over some keys (partial_sums.h).
#include "tessera/ring_attention.h"

#include "core/workspace.h"
#include "modules/ring.h"
#include "ops/partial_sums.h"
#include "tessera/convert.h"

namespace tessera {

void ring_attention(Context& ctx, Communicator& ranks, const RingAttentionArgs& args) {
  check_ring("ring_attention", ranks, args);
  const RingLayout layout = ring_layout(args.tokens, ranks.size(), args.mask);
  const std::int64_t batch = args.q.size(0), rows = args.q.size(1), heads = args.q.size(2),
                     dim = args.q.size(3);
  Workspace::Frame frame(ctx.workspace());
  Ring ring(ctx, ranks, frame, layout, args.k, args.v, args.k.dtype);
  const PartialSums sums{frame.take(DType::f32, {batch, rows, heads, dim}),
                         frame.take(DType::f32, {batch, heads, rows})};
  clear_partial(ctx, sums);
  for (int step = 0; step < ranks.size(); ++step) {
    const bool is_last = step + 1 == ranks.size();
    if (!is_last) ring.start();
    for_each_call(layout, ranks.rank(), ring.owner(), args.mask,
                  [&](const RingCall& call, std::int64_t q0, std::int64_t k0) {
                    const std::int64_t n_q = call.q.size(), n_k = call.k.size();
                    Workspace::Frame part(ctx.workspace());
                    const Tensor out = part.take(args.q.dtype, {batch, n_q, heads, dim});
                    const Tensor lse = part.take(DType::f32, {batch, heads, n_q});
                    attention(ctx, {.q = args.q.slice(1, q0, q0 + n_q),
                                    .k = ring.keys(k0, k0 + n_k),
                                    .v = ring.values(k0, k0 + n_k),
                                    .out = out,
                                    .lse = lse,
                                    .mask = call.mask,
                                    .scale = args.scale,
                                    .softcap = args.softcap});
                    merge_partial(ctx, sums, q0, out, lse);
                  });
    if (!is_last) ring.turn();
  }
  if (rows == 0) return;
  convert(ctx, {.x = sums.out, .out = args.out});
  if (args.lse.defined()) convert(ctx, {.x = sums.lse, .out = args.lse});
}

}  // namespace tessera
