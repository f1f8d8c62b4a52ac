#include "forks.h"

namespace tessera::python {

namespace nb = nanobind;

namespace {

nb::handle objects_with_threads() {
  static const nb::handle set =
      nb::object(nb::module_::import_("weakref").attr("WeakSet")()).release();
  return set;
}

}  // namespace

void note_threads_of(nb::handle object) { objects_with_threads().attr("add")(object); }

void keep_objects_with_threads() {
  for (nb::handle object : objects_with_threads()) object.inc_ref();
}

}  // namespace tessera::python
