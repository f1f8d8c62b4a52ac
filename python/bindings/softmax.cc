#include "tessera/softmax.h"

#include "bind.h"
#include "call.h"

namespace tessera::python {

using namespace nb::literals;

void bind_softmax(nb::module_& m) {
  m.def(
      "softmax",
      [](ArrayInput x, float scale, ArrayOutput out, nb::handle ctx) -> Result {
        Call call("softmax", ctx);
        SoftmaxArgs args;
        args.x = call.input("x", x);
        args.scale = scale;
        args.out = call.output("out", out, x, args.x.dtype, shape_of(args.x));
        call.run([&](Context& c) { softmax(c, args); });
        return out;
      },
      nb::kw_only(), "x"_a, "scale"_a = 1.f, "out"_a = nb::none(), "ctx"_a = nb::none(),
      "softmax(scale x) over the last dimension of x [..., n] of f32, f16 or bf16.\n\n"
      ">>> tessera.softmax(x=numpy.zeros((1, 4), 'float32')).tolist()\n[[0.25, 0.25, 0.25, 0.25]]");
}

}  // namespace tessera::python
