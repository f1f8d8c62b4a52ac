#include "tessera/logprobs.h"

#include "bind.h"
#include "call.h"

namespace tessera::python {

using namespace nb::literals;

namespace {

Result run_logprobs(ArrayInput logits, ArrayInput rows, ArrayInput ids, std::int64_t top,
                    nb::object logprobs_out, ArrayOutput top_ids, ArrayOutput top_logprobs,
                    nb::handle ctx) {
  Call call("logprobs", ctx);
  LogprobsArgs args;
  args.logits = call.input("logits", logits);
  args.rows = call.input("rows", rows);
  args.ids = call.input("ids", ids);
  args.logprobs = call.output("logprobs", logprobs_out, logits, DType::f32, shape_of(args.ids));
  const bool wants_top = top > 0 || !top_ids.is_none() || !top_logprobs.is_none();
  if (wants_top) {
    const Shape shape{args.ids.shape[0], top};
    args.top_ids = call.output("top_ids", top_ids, logits, DType::i32, shape);
    args.top_logprobs = call.output("top_logprobs", top_logprobs, logits, DType::f32, shape);
  }
  call.run([&](Context& c) { logprobs(c, args); });
  return wants_top ? nb::make_tuple(logprobs_out, top_ids, top_logprobs) : logprobs_out;
}

}  // namespace

void bind_logprobs(nb::module_& m) {
  m.def("logprobs", &run_logprobs, nb::kw_only(), "logits"_a, "rows"_a, "ids"_a, "top"_a = 0,
        "logprobs"_a = nb::none(), "top_ids"_a = nb::none(), "top_logprobs"_a = nb::none(),
        "ctx"_a = nb::none(),
        "The logarithm of softmax(row)[id] of each draw. logits: f32 [rows, n]; rows, ids: int32\n"
        "[draws]. With top=k the result is (logprobs, top_ids, top_logprobs), the latter two\n"
        "[draws, k].\n\n"
        ">>> logits = numpy.zeros((1, 4), 'float32')\n"
        ">>> lp = tessera.logprobs(logits=logits, rows=numpy.int32([0]), ids=numpy.int32([2]))\n"
        ">>> numpy.exp(lp).round(3).tolist()\n[0.25]");
}

}  // namespace tessera::python
