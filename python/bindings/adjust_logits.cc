#include "tessera/adjust_logits.h"

#include <nanobind/stl/vector.h>

#include <bit>

#include "bind.h"
#include "call.h"

namespace tessera::python {

using namespace nb::literals;

namespace {

Result run_adjust(ArrayInput logits, ArrayInput rows, ArrayInput bias_begin, ArrayInput bias_ids,
                  ArrayInput bias, ArrayInput penalties, ArrayInput slots, ArrayInput counts,
                  ArrayOutput out, nb::handle ctx) {
  Call call("adjust_logits", ctx);
  AdjustLogitsArgs args;
  args.logits = call.input("logits", logits);
  args.rows = call.input("rows", rows);
  args.bias_begin = call.input("bias_begin", bias_begin);
  args.bias_ids = call.input("bias_ids", bias_ids);
  args.bias = call.input("bias", bias);
  args.penalties = call.input("penalties", penalties);
  args.slots = call.input("slots", slots);
  args.counts = call.input("counts", counts);
  const Shape shape{args.rows.shape[0], args.logits.rank > 0 ? args.logits.size(-1) : 0};
  args.out = call.output("out", out, logits, DType::f32, shape);
  call.run([&](Context& c) { adjust_logits(c, args); });
  return out;
}

}  // namespace

void bind_adjust_logits(nb::module_& m) {
  m.def(
      "penalty_options",
      [](double repetition, double presence, double frequency) {
        return std::vector<std::int64_t>{std::bit_cast<std::int64_t>(repetition),
                                         std::bit_cast<std::int64_t>(presence),
                                         std::bit_cast<std::int64_t>(frequency)};
      },
      nb::kw_only(), "repetition"_a = 1.0, "presence"_a = 0.0, "frequency"_a = 0.0,
      "The penalties of one draw of adjust_logits(), as its row of three int64 numbers.\n\n"
      ">>> numpy.array([tessera.penalty_options(repetition=1.1, frequency=0.5)]).shape\n(1, 3)");
  m.def(
      "adjust_logits", &run_adjust, nb::kw_only(), "logits"_a, "rows"_a,
      "bias_begin"_a = nb::none(), "bias_ids"_a = nb::none(), "bias"_a = nb::none(),
      "penalties"_a = nb::none(), "slots"_a = nb::none(), "counts"_a = nb::none(),
      "out"_a = nb::none(), "ctx"_a = nb::none(),
      "The row of each draw with its bias, then its penalties: out f32 [draws, n]. logits: f32\n"
      "[rows, n]; rows: int32 [draws]; bias_begin: int32 [draws + 1]; bias_ids: int32, bias: f32\n"
      "[entries]; penalties: int64 [draws, 3] of penalty_options(); slots: int32 [draws];\n"
      "counts: int32 [slots, n].\n\n"
      ">>> logits, rows = numpy.zeros((1, 3), 'float32'), numpy.int32([0])\n"
      ">>> tessera.adjust_logits(logits=logits, rows=rows, bias_begin=numpy.int32([0, 1]),\n"
      "...                       bias_ids=numpy.int32([2]), bias=numpy.float32([4])).tolist()\n"
      "[[0.0, 0.0, 4.0]]");
}

}  // namespace tessera::python
