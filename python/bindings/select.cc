#include "tessera/select.h"

#include "bind.h"
#include "call.h"

namespace tessera::python {

using namespace nb::literals;

namespace {

Result run_argmax(ArrayInput x, ArrayOutput indices, nb::handle ctx) {
  Call call("argmax", ctx);
  ArgmaxArgs args;
  args.x = call.input("x", x);
  args.indices = call.output("indices", indices, x, DType::i64, without_last(args.x));
  call.run([&](Context& c) { argmax(c, args); });
  return indices;
}

Result run_top_k(ArrayInput x, std::int64_t k, ArrayOutput values, ArrayOutput indices,
                 nb::handle ctx) {
  if (k < 1 && (values.is_none() || indices.is_none())) {
    refuse("top_k: give k, or both values and indices to write to");
  }
  Call call("top_k", ctx);
  TopKArgs args;
  args.x = call.input("x", x);
  const Shape shape = with_last(args.x, k);
  args.values = call.output("values", values, x, args.x.dtype, shape);
  args.indices = call.output("indices", indices, x, DType::i64, shape);
  call.run([&](Context& c) { top_k(c, args); });
  return nb::make_tuple(values, indices);
}

}  // namespace

void bind_select(nb::module_& m) {
  m.def("argmax", &run_argmax, nb::kw_only(), "x"_a, "indices"_a = nb::none(), "ctx"_a = nb::none(),
        "The index of the largest of each row of x [..., n]: [...] of int32 or int64.\n\n"
        ">>> tessera.argmax(x=numpy.float32([[1, 3, 2], [9, 8, 7]])).tolist()\n[1, 0]");
  m.def("top_k", &run_top_k, nb::kw_only(), "x"_a, "k"_a = 0, "values"_a = nb::none(),
        "indices"_a = nb::none(), "ctx"_a = nb::none(),
        "The k largest of each row of x [..., n], largest first: (values, indices), [..., k].\n\n"
        ">>> values, ids = tessera.top_k(x=numpy.float32([[1, 3, 2]]), k=2)\n"
        ">>> values.tolist(), ids.tolist()\n([[3.0, 2.0]], [[1, 2]])");
}

}  // namespace tessera::python
