#include "tessera/adjust_logits.h"

#include "cpu/sampling/adjust.h"
#include "cuda/sampling/adjust.h"
#include "ops/op_scope.h"

namespace tessera {
namespace {

// All three, or none of them.
bool three_given(const OpScope& op, const char* names, const Tensor& a, const Tensor& b,
                 const Tensor& c) {
  const int given = (a.defined() ? 1 : 0) + (b.defined() ? 1 : 0) + (c.defined() ? 1 : 0);
  op.require(given == 0 || given == 3, "{} go together: give all three, or none", names);
  return given == 3;
}

void check_bias(const OpScope& op, const AdjustLogitsArgs& args, std::int64_t draws) {
  if (!three_given(op, "bias_begin, bias_ids and bias", args.bias_begin, args.bias_ids,
                   args.bias)) {
    return;
  }
  op.input("bias_begin", args.bias_begin, {DType::i32});
  op.input("bias_ids", args.bias_ids, {DType::i32});
  op.input("bias", args.bias, {DType::f32});
  op.shape("bias_begin", args.bias_begin, {draws + 1});
  op.shape("bias_ids", args.bias_ids, {-1});
  op.same_shape("bias", args.bias, "bias_ids", args.bias_ids);
}

void check_penalties(const OpScope& op, const AdjustLogitsArgs& args, std::int64_t draws) {
  if (!three_given(op, "penalties, slots and counts", args.penalties, args.slots, args.counts)) {
    return;
  }
  op.input("penalties", args.penalties, {DType::i64});
  op.input("slots", args.slots, {DType::i32});
  op.input("counts", args.counts, {DType::i32});
  op.shape("penalties", args.penalties, {draws, kPenaltiesWords});
  op.shape("slots", args.slots, {draws});
  op.shape("counts", args.counts, {-1, args.logits.size(-1)});
}

void check_adjust_logits(const OpScope& op, const AdjustLogitsArgs& args) {
  op.input("logits", args.logits, {DType::f32});
  op.input("rows", args.rows, {DType::i32});
  op.output("out", args.out, {DType::f32});
  op.shape("logits", args.logits, {-1, -1});
  op.shape("rows", args.rows, {-1});
  const std::int64_t draws = args.rows.numel();
  op.shape("out", args.out, {draws, args.logits.size(-1)});
  check_bias(op, args, draws);
  check_penalties(op, args, draws);
  op.no_overlap("out", args.out, "logits", args.logits);
}

}  // namespace

void adjust_logits(Context& ctx, const AdjustLogitsArgs& args) {
  const OpScope op(ctx, "adjust_logits");
  check_adjust_logits(op, args);
  if (op.only_counts([] { return 0; })) return;
  op.run([&] { return "logits " + to_string(args.logits) + " out " + to_string(args.out); },
         [&] {
           cpu::adjust_logits(ctx, args);
           return "cpu";
         },
         [&] {
           cuda::adjust_logits(ctx, args);
           return "cuda";
         },
         [&] {
           const std::int64_t passes = args.slots.defined() ? 3 : 2;  // a count is as wide
           return OpCost{passes * args.out.bytes(), args.out.numel()};
         });
}

}  // namespace tessera
