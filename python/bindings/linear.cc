#include "tessera/linear.h"

#include <nanobind/stl/string.h>

#include "bind.h"
#include "names.h"
#include "weight_object.h"

namespace tessera::python {

using namespace nb::literals;

namespace {

Result run_linear(ArrayInput x, nb::handle weight, ArrayInput bias, const std::string& activation,
                  ArrayInput residual, ArrayOutput out, std::int64_t fixed_rows, nb::handle ctx) {
  Call call("linear", ctx);
  LinearArgs args;
  args.x = call.input("x", x);
  args.weight = weight_argument(call, "weight", weight);
  args.bias = call.input("bias", bias);
  args.activation = parse_activation(activation);
  args.residual = call.input("residual", residual);
  args.out = call.output("out", out, x, args.x.dtype, with_last(args.x, args.weight.out_features));
  args.fixed_rows = fixed_rows;
  call.run([&](Context& c) { linear(c, args); });
  return out;
}

Result run_gated(ArrayInput x, nb::handle gate, nb::handle up, ArrayInput gate_bias,
                 ArrayInput up_bias, const std::string& activation, ArrayOutput out,
                 std::int64_t fixed_rows, nb::handle ctx) {
  Call call("gated_linear", ctx);
  GatedLinearArgs args;
  args.x = call.input("x", x);
  args.gate = weight_argument(call, "gate", gate);
  args.up = weight_argument(call, "up", up);
  args.gate_bias = call.input("gate_bias", gate_bias);
  args.up_bias = call.input("up_bias", up_bias);
  args.activation = parse_activation(activation);
  args.out = call.output("out", out, x, args.x.dtype, with_last(args.x, args.gate.out_features));
  args.fixed_rows = fixed_rows;
  call.run([&](Context& c) { gated_linear(c, args); });
  return out;
}

}  // namespace

void bind_linear(nb::module_& m) {
  m.def("linear", &run_linear, nb::kw_only(), "x"_a, "weight"_a, "bias"_a = nb::none(),
        "activation"_a = "none", "residual"_a = nb::none(), "out"_a = nb::none(),
        "fixed_rows"_a = -1, "ctx"_a = nb::none(),
        "out = act(x W^T + bias) + residual\n\n"
        "x: [..., in] of f32, f16 or bf16; weight: a Weight or an array [out, in]; bias: [out];\n"
        "out, residual: [..., out]. activation: none, relu, gelu, gelu_tanh or silu.\n\n"
        ">>> dense, x = numpy.ones((48, 64), 'float32'), numpy.ones((2, 64), 'float32')\n"
        ">>> w = tessera.prepare(tessera.quantize(dense, format='nvfp4'))\n"
        ">>> tessera.linear(x=x, weight=w, activation='gelu').shape\n(2, 48)");
  m.def("gated_linear", &run_gated, nb::kw_only(), "x"_a, "gate"_a, "up"_a,
        "gate_bias"_a = nb::none(), "up_bias"_a = nb::none(), "activation"_a = "silu",
        "out"_a = nb::none(), "fixed_rows"_a = -1, "ctx"_a = nb::none(),
        "out = act(x Wg^T + bg) * (x Wu^T + bu); x: [..., in], gate and up: [out, in].\n\n"
        ">>> w, x = numpy.ones((48, 64), 'float32'), numpy.ones((2, 64), 'float32')\n"
        ">>> tessera.gated_linear(x=x, gate=w, up=w).shape\n(2, 48)");
}

}  // namespace tessera::python
