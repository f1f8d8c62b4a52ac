#include "tessera/tokenizer.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "call.h"
#include "text_argument.h"

namespace tessera::python {

using namespace nb::literals;

namespace {

// Of a list or an array of any library.
std::vector<std::int32_t> read_ids(nb::handle ids) {
  std::vector<std::int32_t> read;
  for (nb::handle id : ids) {
    const nb::object number = nb::steal(PyNumber_Index(id.ptr()));
    if (!number.is_valid()) throw nb::python_error();
    std::int32_t value = 0;
    if (!nb::try_cast(number, value)) {
      refuse("token id " + nb::cast<std::string>(nb::str(number)) + " is in no vocabulary");
    }
    read.push_back(value);
  }
  return read;
}

}  // namespace

std::string_view utf8_of(const nb::str& text) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (data == nullptr) throw nb::python_error();  // what Python says of half a character
  return {data, static_cast<std::size_t>(size)};
}

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
          [](const Tokenizer& self, const nb::str& text, bool add_special, bool parse_special) {
            const std::string_view utf8 = utf8_of(text);
            const nb::gil_scoped_release released;
            return self.encode(utf8, {.add_special = add_special, .parse_special = parse_special});
          },
          "text"_a, nb::kw_only(), "add_special"_a = false, "parse_special"_a = true,
          "Token ids. parse_special=False for the words of somebody else: '<|im_end|>' in them\n"
          "stays text.")
      .def(
          "decode",
          [](const Tokenizer& self, const nb::typed<nb::iterable, int>& ids, bool skip_special) {
            return self.decode(read_ids(ids), skip_special);
          },
          "ids"_a, nb::kw_only(), "skip_special"_a = false)
      .def_prop_ro("vocab_size", &Tokenizer::vocab_size)
      .def("token", &Tokenizer::token, "id"_a, "The token as the vocabulary spells it.")
      .def("id_of", &Tokenizer::id_of, "token"_a)
      .def("is_special", &Tokenizer::is_special, "id"_a);
}

}  // namespace tessera::python
