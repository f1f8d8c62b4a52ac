#include "tessera/quant.h"

#include <nanobind/stl/string.h>

#include "bind.h"
#include "names.h"
#include "weight_object.h"

namespace tessera::python {

using namespace nb::literals;

namespace {

QuantizeOptions quantize_options(const std::string& format, std::int64_t group, bool zero_point,
                                 const std::string& search) {
  if (search != "least_squares" && search != "from_max") {
    refuse("search '" + search + "' is not known; give one of: least_squares, from_max");
  }
  return {.format = parse_format(format),
          .group = group,
          .zero_point = zero_point,
          .search = search == "from_max" ? ScaleSearch::from_max : ScaleSearch::least_squares};
}

WeightObject quantize_dense(ArrayInput dense, const std::string& format, std::int64_t group,
                            bool zero_point, const std::string& search, nb::handle ctx) {
  const QuantizeOptions options = quantize_options(format, group, zero_point, search);
  Call call("quantize", ctx);
  const Tensor matrix = call.input("dense", dense);
  PackedWeight packed;
  call.run([&](Context& c) { packed = quantize(c, matrix, options); });
  return make_weight(std::move(packed));
}

Result dequantize_weight(nb::handle weight, ArrayOutput out, nb::handle ctx) {
  Call call("dequantize", ctx);
  const Weight from = weight_argument(call, "weight", weight);
  const nb::object like = nb::isinstance<WeightObject>(weight)
                              ? nb::cast<const WeightObject&>(weight).array
                              : nb::borrow<nb::object>(weight);
  const Tensor to = call.output("out", out, like.is_valid() ? like : nb::none(), DType::f32,
                                {from.out_features, from.in_features});
  call.run([&](Context& c) { dequantize(c, from, to); });
  return out;
}

WeightObject prepare_weight(nb::handle weight, nb::handle ctx) {
  Call call("prepare", ctx);
  const Weight from = weight_argument(call, "weight", weight);
  PackedWeight packed;
  call.run([&](Context& c) { packed = prepare(c, from); });
  return make_weight(std::move(packed));
}

}  // namespace

void bind_quant(nb::module_& m) {
  m.def("quantize", &quantize_dense, "dense"_a, nb::kw_only(), "format"_a = "nvfp4", "group"_a = -1,
        "zero_point"_a = false, "search"_a = "least_squares", "ctx"_a = nb::none(),
        "Packs a dense matrix [out, in] of f32, f16 or bf16 into a Weight.\n\n"
        ">>> w = tessera.quantize(numpy.ones((64, 32), 'float32'), format='int4', group=32)\n"
        ">>> w.nbytes\n1152");
  m.def("dequantize", &dequantize_weight, "weight"_a, "out"_a = nb::none(), nb::kw_only(),
        "ctx"_a = nb::none(),
        "Decodes a Weight into out [out, in]; without out, into a new f32 array.\n\n"
        ">>> packed = tessera.quantize(numpy.ones((64, 32), 'float32'), format='int8')\n"
        ">>> numpy.asarray(tessera.dequantize(packed)).shape\n(64, 32)");
  m.def(
      "prepare", &prepare_weight, "weight"_a, nb::kw_only(), "ctx"_a = nb::none(),
      "Copies a packed Weight [out, in] into the layout that the device's kernels read fastest.\n\n"
      ">>> packed = tessera.quantize(numpy.ones((64, 32), 'float32'), format='nvfp4')\n"
      ">>> packed.layout, tessera.prepare(packed).layout\n('published', 'cpu_tiles')");
  m.def(
      "packed_bytes",
      [](const std::string& format, std::int64_t group, bool zero_point, std::int64_t out_features,
         std::int64_t in_features) {
        return packed_bytes(quantize_options(format, group, zero_point, "least_squares"),
                            out_features, in_features);
      },
      nb::kw_only(), "format"_a = "nvfp4", "group"_a = -1, "zero_point"_a = false, "out_features"_a,
      "in_features"_a,
      "Bytes that quantize() will store for a matrix [out_features, in_features].\n\n"
      ">>> tessera.packed_bytes(format='int4', group=32, out_features=64, in_features=32)\n1152");
}

}  // namespace tessera::python
