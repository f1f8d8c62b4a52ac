#include "tessera/dropout.h"

#include <nanobind/stl/pair.h>

#include "bind.h"
#include "option_arguments.h"

namespace tessera::python {

using namespace nb::literals;
using DropoutState = std::pair<float, std::uint64_t>;

Dropout dropout_argument(const char* op, nb::handle dropout) {
  return option_argument<Dropout>(op, "dropout", dropout,
                                  "tessera.Dropout, as in dropout=tessera.Dropout(0.1, seed=3)");
}

void bind_dropout(nb::module_& m) {
  nb::class_<Dropout>(
      m, "Dropout",
      "Drops an element with probability p, and divides the others by 1 - p. The seed and the\n"
      "element's place decide, in arrays of any shape.\n\n"
      ">>> drop = tessera.Dropout(0.5, seed=3)\n"
      ">>> q = numpy.ones((1, 5, 8, 64), 'float32')\n"
      ">>> out = tessera.attention(q=q, k=q, v=q, dropout=drop)")
      .def(
          "__init__",
          [](Dropout* self, float p, std::uint64_t seed) {
            new (self) Dropout{p, seed};
          },
          "p"_a = 0.f, "seed"_a = 0)
      .def_ro("p", &Dropout::p)
      .def_ro("seed", &Dropout::seed)
      .def("__getstate__", [](const Dropout& self) { return DropoutState(self.p, self.seed); })
      .def("__setstate__", [](Dropout& self, const DropoutState& state) {
        new (&self) Dropout{state.first, state.second};
      });
}

}  // namespace tessera::python
