#include "tessera/tokenizer.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bind.h"

namespace tessera::python {

namespace nb = nanobind;
using namespace nb::literals;

using Ids = std::vector<std::int32_t>;

void bind_tokenizer(nb::module_& m) {
  nb::class_<Tokenizer>(m, "Tokenizer",
                        "Text to token ids (a list) and back, as a tokenizer.json describes it.\n\n"
                        ">>> tokenizer = tessera.load_tokenizer()\n"
                        ">>> tokenizer.decode(tokenizer.encode('Once upon a time'))\n"
                        "'Once upon a time'")
      .def_static("from_file", &Tokenizer::from_file, "path"_a,
                  nb::call_guard<nb::gil_scoped_release>(),
                  "From a tokenizer.json, or a folder that holds one.")
      .def(
          "encode",
          [](const Tokenizer& self, const std::string& text, bool add_special, bool parse_special) {
            const nb::gil_scoped_release released;
            return self.encode(text, {.add_special = add_special, .parse_special = parse_special});
          },
          "text"_a, nb::kw_only(), "add_special"_a = false, "parse_special"_a = true,
          "Token ids. parse_special=False for the words of somebody else: '<|im_end|>' in them\n"
          "stays text.")
      .def(
          "decode",
          [](const Tokenizer& self, const Ids& ids, bool skip_special) {
            return self.decode(ids, skip_special);
          },
          "ids"_a, nb::kw_only(), "skip_special"_a = false)
      .def_prop_ro("vocab_size", &Tokenizer::vocab_size)
      .def("token", &Tokenizer::token, "id"_a, "The token as the vocabulary spells it.")
      .def("id_of", &Tokenizer::id_of, "token"_a)
      .def("is_special", &Tokenizer::is_special, "id"_a);
}

}  // namespace tessera::python
