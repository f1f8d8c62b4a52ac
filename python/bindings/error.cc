#include "tessera/error.h"

#include <exception>

#include "bind.h"
#include "names.h"

namespace tessera::python {

namespace nb = nanobind;

namespace {

constexpr const char* kErrorDoc =
    "What Tessera refuses or fails at, in one sentence. `code` is one of invalid_argument,\n"
    "unsupported, out_of_memory, overflow, device, file, busy.\n\n"
    ">>> try:\n"
    "...     tessera.softmax(x='words')\n"
    "... except tessera.Error as error:\n"
    "...     error.code\n"
    "'invalid_argument'";

void raise(const std::exception_ptr& thrown, void* type) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    nb::handle error_type(static_cast<PyObject*>(type));
    nb::object exception = error_type(error.what());
    exception.attr("code") = name(error.code());
    PyErr_SetObject(error_type.ptr(), exception.ptr());
  }
}

}  // namespace

void bind_error(nb::module_& m) {
  PyObject* type =
      PyErr_NewExceptionWithDoc("tessera.Error", kErrorDoc, PyExc_RuntimeError, nullptr);
  m.attr("Error") = nb::borrow(type);
  nb::setattr(nb::handle(type), "code", nb::str("invalid_argument"));
  nb::register_exception_translator(raise, type);
}

}  // namespace tessera::python
