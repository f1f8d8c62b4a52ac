#include "tessera/rotary.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "names.h"
#include "rope_object.h"

namespace tessera::python {

using namespace nb::literals;

Rope rope_argument(Call& call, const char* argument, nb::handle object) {
  if (object.is_none()) return {};
  if (!nb::isinstance<RopeObject>(object)) {
    refuse(std::string(argument) + " must be a tessera.Rope(inv_freq, style)");
  }
  const RopeObject& rope = nb::cast<const RopeObject&>(object);
  return {.inv_freq = call.input(argument, rope.inv_freq), .style = rope.style};
}

namespace {

Result rotate(ArrayInput x, ArrayInput positions, nb::handle rope, ArrayOutput out,
              nb::handle ctx) {
  Call call("rotary", ctx);
  RotaryArgs args;
  args.x = call.input("x", x);
  args.positions = call.input("positions", positions);
  args.rope = rope_argument(call, "rope", rope);
  args.out = call.output("out", out, x, args.x.dtype, shape_of(args.x));
  call.run([&](Context& c) { rotary(c, args); });
  return out;
}

}  // namespace

void bind_rotary(nb::module_& m) {
  nb::class_<RopeObject>(
      m, "Rope",
      "Frequencies of a rotary embedding: f32 [dims / 2]. It rotates the first dims elements of a\n"
      "head.\n\n"
      ">>> rope = tessera.Rope(numpy.float32(tessera.rope_inv_freq(64)), style='interleaved')\n"
      ">>> rope.inv_freq.shape, rope.style\n((32,), 'interleaved')")
      .def(
          "__init__",
          [](RopeObject* self, nb::object inv_freq, const std::string& style) {
            new (self) RopeObject{std::move(inv_freq), parse_rope_style(style)};
          },
          "inv_freq"_a, "style"_a = "half_split",
          "style: half_split (GPT-NeoX, Llama of Hugging Face) or interleaved (GPT-J).")
      .def_ro("inv_freq", &RopeObject::inv_freq)
      .def_prop_ro("style", [](const RopeObject& self) { return name(self.style); });
  m.def("rope_inv_freq", &rope_inv_freq, "dims"_a, "theta"_a = 10000.0,
        "theta^(-2i / dims) for i below dims / 2, as a list: [dims / 2].\n\n"
        ">>> [round(f, 6) for f in tessera.rope_inv_freq(4)]\n[1.0, 0.01]");
  m.def("rotary", &rotate, nb::kw_only(), "x"_a, "positions"_a, "rope"_a, "out"_a = nb::none(),
        "ctx"_a = nb::none(),
        "Rotates x [batch, seq, heads, dim] by positions (int32 or int64, [seq] or [batch, seq]).\n"
        "Returns out, like x; it may be x.\n\n"
        ">>> rope = tessera.Rope(numpy.float32(tessera.rope_inv_freq(64)))\n"
        ">>> x = numpy.ones((1, 5, 8, 64), 'float32')\n"
        ">>> tessera.rotary(x=x, positions=numpy.arange(5), rope=rope).shape\n(1, 5, 8, 64)");
}

}  // namespace tessera::python
