// Objects with threads of their own. The child of a fork has the objects without the threads, and
// their destructors would wait for those for ever: it never frees them.
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

// To be told of each such object, whose class is weakly referenceable.
void note_threads_of(nanobind::handle object);
// In the child.
void keep_objects_with_threads();

}  // namespace tessera::python
