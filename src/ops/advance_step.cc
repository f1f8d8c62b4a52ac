#include "ops/advance_step.h"

#include <algorithm>
#include <span>

#include "core/step_row.h"
#include "cuda/elementwise/advance_step.h"
#include "ops/op_scope.h"

namespace tessera {
namespace {

void check_advance_step(const OpScope& op, const AdvanceStepArgs& args) {
  op.output("rows", args.rows, {DType::i64});
  op.output("positions", args.positions, {DType::i64});
  op.output("slots", args.slots, {DType::i32});
  op.output("block", args.block, {DType::i32});
  op.shape("rows", args.rows, {-1, kStepRowWords});
  op.shape("positions", args.positions, {args.rows.size(0)});
  op.shape("slots", args.slots, {args.rows.size(0)});
  op.shape("block", args.block, {-1});
  for (const Tensor* tensor : {&args.rows, &args.positions, &args.slots, &args.block}) {
    op.require(tensor->is_contiguous(), "{} must be contiguous", *tensor);
  }
  if (args.draws.defined()) {
    op.output("draws", args.draws, {DType::i64});
    op.shape("draws", args.draws, {-1, kDrawOptionsWords});
    op.require(args.draws.is_contiguous(), "{} must be contiguous", args.draws);
  }
  const IdRing& ring = args.ring;
  if (!ring.ids.defined()) return;
  op.input("ring.ids", ring.ids, {DType::i32});
  op.output("ring.turn", ring.turn, {DType::i64});
  op.shape("ring.ids", ring.ids, {-1});
  op.shape("ring.turn", ring.turn, {1});
  op.require(ring.places[0] != nullptr && ring.places[1] != nullptr, "the ring has no places");
}

cuda::AdvanceStepCall call_of(const AdvanceStepArgs& args) {
  const bool has_draws = args.draws.defined(), has_ring = args.ring.ids.defined();
  return {.rows = static_cast<StepRow*>(args.rows.data),
          .row_count = args.rows.size(0),
          .tensors = {.positions = args.positions.ptr<std::int64_t>(),
                      .slots = args.slots.ptr<std::int32_t>(),
                      .words = args.block.ptr<std::int32_t>()},
          .draws = has_draws ? static_cast<DrawOptions*>(args.draws.data) : nullptr,
          .draw_count = has_draws ? args.draws.size(0) : 0,
          .ids = has_ring ? args.ring.ids.ptr<const std::int32_t>() : nullptr,
          .id_count = has_ring ? args.ring.ids.size(0) : 0,
          .turn = has_ring ? args.ring.turn.ptr<std::int64_t>() : nullptr,
          .places = {args.ring.places[0], args.ring.places[1]},
          .settled = args.settled};
}

void advance_on_cpu(const cuda::AdvanceStepCall& call) {
  advance_rows({call.rows, static_cast<std::size_t>(call.row_count)}, call.tensors);
  for (DrawOptions& draw : std::span(call.draws, static_cast<std::size_t>(call.draw_count))) {
    draw.draw = next_draw(draw.temperature, draw.draw);
  }
  if (call.ids != nullptr) std::copy_n(call.ids, call.id_count, call.places[(*call.turn)++ % 2]);
}

}  // namespace

void advance_step(Context& ctx, const AdvanceStepArgs& args) {
  const OpScope op(ctx, "advance_step");
  check_advance_step(op, args);
  if (op.only_counts([] { return 0; })) return;
  op.run([&] { return "rows " + to_string(args.rows); },
         [&] {
           advance_on_cpu(call_of(args));
           return "cpu";
         },
         [&] {
           cuda::advance_step(ctx, call_of(args));
           return "cuda";
         },
         [&] {
           return OpCost{2 * args.rows.bytes(), 0};
         });
}

}  // namespace tessera
