#include "tessera/dropout.h"

#include "bind.h"

namespace tessera::python {

namespace nb = nanobind;
using namespace nb::literals;

void bind_dropout(nb::module_& m) {
  nb::class_<Dropout>(
      m, "Dropout", "Drops an element with probability p; the seed and the element's place decide.")
      .def(
          "__init__",
          [](Dropout* self, float p, std::uint64_t seed) {
            new (self) Dropout{p, seed};
          },
          "p"_a = 0.f, "seed"_a = 0)
      .def_ro("p", &Dropout::p)
      .def_ro("seed", &Dropout::seed);
}

}  // namespace tessera::python
