#include "ops/rotary_append_args.h"

#include "cpu/elementwise/rotary_append.h"
#include "ops/kv_append_args.h"
#include "ops/rotary_args.h"

namespace tessera {
namespace {

KvAppendArgs appended(const RotaryAppendArgs& args) {
  return {.k = args.k,
          .v = args.v,
          .slots = args.slots,
          .k_pages = args.k_pages,
          .v_pages = args.v_pages,
          .k_scales = args.k_scales,
          .v_scales = args.v_scales};
}

}  // namespace

void check_rotary_append(const OpScope& op, const RotaryAppendArgs& args) {
  const Tensor &q = args.q, &k = args.k, &q_out = args.q_out;
  op.input("q", q, {DType::f32, DType::f16, DType::bf16});
  op.shape("q", q, {-1, -1, -1});
  op.input("k", k, {q.dtype});
  op.shape("k", k, {q.shape[0], -1, q.shape[2]});
  op.input("positions", args.positions, {DType::i32, DType::i64});
  op.shape("positions", args.positions, {q.shape[0]});
  check_rope(op, args.rope, "q", q);
  check_kv_append(op, appended(args));
  op.output("q_out", q_out, {q.dtype});
  op.same_shape("q_out", q_out, "q", q);
  op.no_overlap("q_out", q_out, "q", q, /*same_view_is_fine=*/true);
  const struct {
    const char* name;
    const Tensor& tensor;
  } outputs[] = {{"q_out", q_out},
                 {"k_pages", args.k_pages},
                 {"v_pages", args.v_pages},
                 {"k_scales", args.k_scales},
                 {"v_scales", args.v_scales}};
  for (const auto& [name, out] : outputs) {
    if (!out.defined()) continue;
    op.no_overlap(name, out, "positions", args.positions);
    op.no_overlap(name, out, "rope.inv_freq", args.rope.inv_freq);
    if (out.data != q_out.data) op.no_overlap(name, out, "q", q);
  }
  for (const auto& [name, tensor] : {std::pair{"k", &k},
                                     {"v", &args.v},
                                     {"slots", &args.slots},
                                     {"k_pages", &args.k_pages},
                                     {"v_pages", &args.v_pages},
                                     {"k_scales", &args.k_scales},
                                     {"v_scales", &args.v_scales}}) {
    op.no_overlap("q_out", q_out, name, *tensor);
  }
}

void check_rotary_append_values(const OpScope& op, Context& ctx, const RotaryAppendArgs& args) {
  check_positions(op, args.positions);
  check_kv_slots(op, ctx, appended(args));
}

std::int64_t rotary_append_scratch_bytes(Context& ctx, const RotaryAppendArgs& args) {
  if (!ctx.device().is_cpu()) return 0;
  return checked_add(kv_slots_scratch_bytes(ctx, appended(args)),
                     cpu::rotary_append_scratch_bytes(ctx, args));
}

OpCost rotary_append_cost(const RotaryAppendArgs& args) {
  const std::int64_t heads = args.q.shape[1] + (args.rotate_keys ? args.k.shape[1] : 0);
  const std::int64_t moved = 2 * args.q.bytes() + kv_append_bytes(appended(args));
  return {moved + args.positions.bytes() + args.slots.bytes() + args.rope.inv_freq.bytes(),
          3 * args.q.shape[0] * heads * args.rope.dims()};
}

}  // namespace tessera
