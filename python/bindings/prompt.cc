#include "tessera/prompt.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "text_argument.h"

namespace tessera::python {

namespace nb = nanobind;
using namespace nb::literals;

void bind_prompt(nb::module_& m) {
  nb::class_<PromptEncoder>(m, "PromptEncoder", "Begins a text as the model wants it: bos.")
      .def(nb::init<const Tokenizer&, const ModelConfig&, const std::filesystem::path&>(),
           "tokenizer"_a, "config"_a, "directory"_a, nb::keep_alive<1, 2>())
      .def(
          "encode",
          [](const PromptEncoder& self, const nb::str& text) { return self.encode(utf8_of(text)); },
          "text"_a)
      .def_prop_ro("bos", &PromptEncoder::bos);
}

}  // namespace tessera::python
