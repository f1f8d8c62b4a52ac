#include "exchange.h"

#include <unordered_map>

namespace tessera::python {

namespace nb = nanobind;

namespace {

const ExchangeTable* find_table(PyTypeObject* type) {
  nb::object capsule = nb::getattr(nb::handle(reinterpret_cast<PyObject*>(type)),
                                   "__dlpack_c_exchange_api__", nb::none());
  if (capsule.is_none() || !PyCapsule_CheckExact(capsule.ptr())) return nullptr;
  void* pointer = PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api");
  if (pointer == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  auto* table = static_cast<const ExchangeTable*>(pointer);
  return table->header.major == 1 && table->view_of_object != nullptr ? table : nullptr;
}

}  // namespace

const ExchangeTable* exchange_table(nb::handle object) {
  // Types are kept alive, so that a new one never has the address of an old one.
  static auto& known = *new std::unordered_map<PyTypeObject*, const ExchangeTable*>();
  PyTypeObject* type = Py_TYPE(object.ptr());
  const auto found = known.find(type);
  if (found != known.end()) return found->second;
  const ExchangeTable* table = find_table(type);
  Py_INCREF(reinterpret_cast<PyObject*>(type));
  known.emplace(type, table);
  return table;
}

}  // namespace tessera::python
