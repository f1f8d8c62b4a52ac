#include "tessera/embedding.h"

#include "bind.h"
#include "weight_object.h"

namespace tessera::python {

using namespace nb::literals;

namespace {

Result run_embedding(ArrayInput ids, ArrayInput table, ArrayOutput out, nb::handle ctx) {
  Call call("embedding", ctx);
  EmbeddingArgs args;
  args.ids = call.input("ids", ids);
  args.table = weight_argument(call, "table", table);
  Shape shape = shape_of(args.ids);
  shape.push_back(args.table.in_features);
  const DType dtype = args.table.format == Format::dense ? args.table.data.dtype : DType::f32;
  args.out = call.output("out", out, ids, dtype, shape);
  call.run([&](Context& c) { embedding(c, args); });
  return out;
}

}  // namespace

void bind_embedding(nb::module_& m) {
  m.def("embedding", &run_embedding, nb::kw_only(), "ids"_a, "table"_a, "out"_a = nb::none(),
        "ctx"_a = nb::none(),
        "Rows of a table [rows, n] (a Weight or an array) by ids (int32 or int64, [...]):\n"
        "[..., n].\n\n"
        ">>> table = numpy.arange(6, dtype='float32').reshape(3, 2)\n"
        ">>> tessera.embedding(ids=numpy.array([2, 0]), table=table).tolist()\n"
        "[[4.0, 5.0], [0.0, 1.0]]");
}

}  // namespace tessera::python
