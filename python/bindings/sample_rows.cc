#include "tessera/sample_rows.h"

#include <nanobind/stl/vector.h>

#include <bit>

#include "bind.h"
#include "call.h"

namespace tessera::python {

using namespace nb::literals;

namespace {

std::vector<std::int64_t> draw_words(double temperature, double top_p, double min_p,
                                     std::int64_t top_k, std::uint64_t seed, std::uint64_t draw) {
  return {std::bit_cast<std::int64_t>(temperature), std::bit_cast<std::int64_t>(top_p),
          std::bit_cast<std::int64_t>(min_p),       top_k,
          std::bit_cast<std::int64_t>(seed),        std::bit_cast<std::int64_t>(draw)};
}

Result run_sample_rows(ArrayInput logits, ArrayInput rows, ArrayInput options, ArrayOutput ids,
                       nb::handle ctx) {
  Call call("sample_rows", ctx);
  SampleRowsArgs args;
  args.logits = call.input("logits", logits);
  args.rows = call.input("rows", rows);
  args.options = call.input("options", options);
  args.ids = call.output("ids", ids, logits, DType::i32, shape_of(args.rows));
  call.run([&](Context& c) { sample_rows(c, args); });
  return ids;
}

}  // namespace

void bind_sample_rows(nb::module_& m) {
  m.def("draw_options", &draw_words, nb::kw_only(), "temperature"_a = 1.0, "top_p"_a = 1.0,
        "min_p"_a = 0.0, "top_k"_a = 0, "seed"_a = 0, "draw"_a = 0,
        "The options of one draw of sample_rows(), as its row of six int64 numbers.\n\n"
        ">>> options = numpy.array([tessera.draw_options(top_k=5, seed=i) for i in range(3)])\n"
        ">>> options.shape\n(3, 6)");
  m.def("sample_rows", &run_sample_rows, nb::kw_only(), "logits"_a, "rows"_a, "options"_a,
        "ids"_a = nb::none(), "ctx"_a = nb::none(),
        "Draws from rows of logits [rows, n] f32; rows: int32 [draws]; options: int64 [draws, 6],\n"
        "each made by draw_options(). Returns ids: int32 [draws].\n\n"
        ">>> logits, rows = numpy.float32([[0, 5, 0], [9, 0, 0]]), numpy.int32([1, 0, 1])\n"
        ">>> options = numpy.array([tessera.draw_options(top_k=1, seed=i) for i in range(3)])\n"
        ">>> tessera.sample_rows(logits=logits, rows=rows, options=options).tolist()\n[0, 1, 0]");
}

}  // namespace tessera::python
