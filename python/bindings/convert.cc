#include "tessera/convert.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "bind.h"
#include "call.h"
#include "names.h"

namespace tessera::python {

using namespace nb::literals;

void bind_convert(nb::module_& m) {
  m.def(
      "convert",
      [](ArrayInput x, ArrayOutput out, const std::optional<std::string>& dtype,
         nb::handle ctx) -> Result {
        if (out.is_none() == !dtype.has_value()) {
          refuse("convert: give either out, or the dtype of a new array (f32, f16, bf16)");
        }
        Call call("convert", ctx);
        ConvertArgs args;
        args.x = call.input("x", x);
        args.out = call.output("out", out, x, dtype ? parse_dtype(*dtype) : args.x.dtype,
                               shape_of(args.x));
        call.run([&](Context& c) { convert(c, args); });
        return out;
      },
      nb::kw_only(), "x"_a, "out"_a = nb::none(), "dtype"_a = nb::none(), "ctx"_a = nb::none(),
      "f32, f16 and bf16 into each other, rounded to nearest even. x, out: [...].\n\n"
      ">>> tessera.convert(x=numpy.ones((2, 3), 'float32'), dtype='f16').dtype\ndtype('float16')");
}

}  // namespace tessera::python
