#include "tessera/norm.h"

#include <nanobind/stl/vector.h>

#include "bind.h"
#include "call.h"
#include "option_arguments.h"

namespace tessera::python {

using namespace nb::literals;

namespace {

using NormOp = void (*)(Context&, const NormArgs&);

Result run_norm(NormOp op, const char* name, ArrayInput x, ArrayInput weight, ArrayInput bias,
                const std::vector<nb::object>& residuals, ArrayOutput sum, float eps,
                DropoutInput dropout, ArrayOutput out, bool fixed_rows, nb::handle ctx) {
  Call call(name, ctx);
  NormArgs args;
  args.x = call.input("x", x);
  if (residuals.size() > args.residuals.size()) {
    refuse(std::string(name) + ": " + std::to_string(residuals.size()) +
           " residuals were given; none to three are taken");
  }
  for (std::size_t i = 0; i < residuals.size(); ++i) {
    args.residuals[i] = call.input("residuals", residuals[i]);
  }
  args.weight = call.input("weight", weight);
  args.bias = call.input("bias", bias);
  args.eps = eps;
  args.dropout = dropout_argument(name, dropout);
  args.fixed_rows = fixed_rows;
  args.out = call.output("out", out, x, args.x.dtype, shape_of(args.x));
  if (!residuals.empty()) {
    args.sum = call.output("sum", sum, x, args.x.dtype, shape_of(args.x));
  } else {
    args.sum = call.output("sum", sum);  // refused by the op if it is given
  }
  call.run([&](Context& c) { op(c, args); });
  return residuals.empty() ? Result(out) : Result(nb::make_tuple(out, sum));
}

}  // namespace

void bind_norm(nb::module_& m) {
  m.def(
      "layer_norm",
      [](ArrayInput x, ArrayInput weight, ArrayInput bias, const std::vector<nb::object>& residuals,
         ArrayOutput sum, float eps, DropoutInput dropout, ArrayOutput out, bool fixed_rows,
         nb::handle ctx) {
        return run_norm(&layer_norm, "layer_norm", x, weight, bias, residuals, std::move(sum), eps,
                        dropout, std::move(out), fixed_rows, ctx);
      },
      nb::kw_only(), "x"_a, "weight"_a, "bias"_a = nb::none(),
      "residuals"_a = std::vector<nb::object>(), "sum"_a = nb::none(), "eps"_a = 1e-5f,
      "dropout"_a = nb::none(), "out"_a = nb::none(), "fixed_rows"_a = false, "ctx"_a = nb::none(),
      "LayerNorm of s = dropout(x) + residuals over the last dimension. x: [..., n] of f32, f16\n"
      "or bf16; weight, bias: [n]. Returns out, or (out, sum) with residuals. fixed_rows: bits of "
      "a\n"
      "row that do not depend on the number of rows, on a GPU too.\n\n"
      ">>> x, w = numpy.ones((2, 64), 'float32'), numpy.ones(64, 'float32')\n"
      ">>> out, s = tessera.layer_norm(x=x, residuals=[x], weight=w, bias=w)");
  m.def(
      "rms_norm",
      [](ArrayInput x, ArrayInput weight, const std::vector<nb::object>& residuals, ArrayOutput sum,
         float eps, DropoutInput dropout, ArrayOutput out, bool fixed_rows, nb::handle ctx) {
        return run_norm(&rms_norm, "rms_norm", x, weight, nb::none(), residuals, std::move(sum),
                        eps, dropout, std::move(out), fixed_rows, ctx);
      },
      nb::kw_only(), "x"_a, "weight"_a, "residuals"_a = std::vector<nb::object>(),
      "sum"_a = nb::none(), "eps"_a = 1e-5f, "dropout"_a = nb::none(), "out"_a = nb::none(),
      "fixed_rows"_a = false, "ctx"_a = nb::none(),
      "RMSNorm of s = dropout(x) + residuals over the last dimension of x [..., n], as\n"
      "layer_norm() without a bias.\n\n"
      ">>> x, w = numpy.ones((2, 64), 'float32'), numpy.ones(64, 'float32')\n"
      ">>> tessera.rms_norm(x=x, weight=w, eps=1e-6).shape\n(2, 64)");
}

}  // namespace tessera::python
