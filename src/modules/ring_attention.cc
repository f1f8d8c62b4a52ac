// Forward around the ring. Each call gives a partial result over some keys, which is merged into the
// result so far:
//
//   lse' = log(exp(lse) + exp(lse_part));  out' = out exp(lse - lse') + out_part exp(lse_part - lse')
#include "tessera/ring_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/thread_pool.h"
#include "core/type_switch.h"
#include "core/workspace.h"
#include "modules/ring.h"
#include "tessera/convert.h"
#include "tessera/half.h"

namespace tessera {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

// Results so far, in f32.
struct Sums {
  Tensor out;  // [batch, rows, heads, dim]
  Tensor lse;  // [batch, heads, rows]
};

template <typename T>
void merge_row(const T* part, float part_lse, std::int64_t dim, float* out, float& lse) {
  if (part_lse == kNothing) return;
  const float top = std::max(lse, part_lse);
  const float old_weight = std::exp(lse - top), new_weight = std::exp(part_lse - top);
  const float sum = old_weight + new_weight;
  for (std::int64_t d = 0; d < dim; ++d) {
    out[d] = (out[d] * old_weight + to_float(part[d]) * new_weight) / sum;
  }
  lse = top + std::log(sum);
}

// Rows [first, first + rows) of the sums, and a partial result of these rows.
void merge(Context& ctx, const Sums& sums, std::int64_t first, const Tensor& part,
           const Tensor& part_lse) {
  const std::int64_t rows = part.size(1), heads = part.size(2), dim = part.size(3);
  ctx.pool().parallel_for(part.size(0) * rows, [&](std::int64_t i, int) {
    const std::int64_t b = i / rows, row = i % rows;
    with_float_type(part.dtype, [&](auto type) {
      for (std::int64_t h = 0; h < heads; ++h) {
        const auto* from = part.ptr<const decltype(type)>() + b * part.stride(0) +
                           row * part.stride(1) + h * part.stride(2);
        float* to = sums.out.ptr<float>() + b * sums.out.stride(0) +
                    (first + row) * sums.out.stride(1) + h * sums.out.stride(2);
        float& lse = sums.lse.ptr<float>()[b * sums.lse.stride(0) + h * sums.lse.stride(1) + first +
                                           row];
        const float new_lse = part_lse.ptr<const float>()[b * part_lse.stride(0) +
                                                          h * part_lse.stride(1) + row];
        merge_row(from, new_lse, dim, to, lse);
      }
    });
  });
}

}  // namespace

void ring_attention(Context& ctx, Communicator& ranks, const RingAttentionArgs& args) {
  check_ring("ring_attention", ctx, ranks, args);
  const RingLayout layout = ring_layout(args.tokens, ranks.size(), args.mask);
  const std::int64_t batch = args.q.size(0), rows = args.q.size(1), heads = args.q.size(2),
                     dim = args.q.size(3);
  Workspace::Frame frame(ctx.workspace());
  Ring ring(ctx, ranks, frame, layout, args.k, args.v, args.k.dtype);
  const Sums sums{frame.take(DType::f32, {batch, rows, heads, dim}),
                  frame.take(DType::f32, {batch, heads, rows})};
  std::fill_n(sums.out.ptr<float>(), sums.out.numel(), 0.f);
  std::fill_n(sums.lse.ptr<float>(), sums.lse.numel(), kNothing);
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
                    merge(ctx, sums, q0, out, lse);
                  });
    if (!is_last) ring.turn();
  }
  if (rows == 0) return;
  convert(ctx, {.x = sums.out, .out = args.out});
  if (args.lse.defined()) convert(ctx, {.x = sums.lse, .out = args.lse});
}

}  // namespace tessera
