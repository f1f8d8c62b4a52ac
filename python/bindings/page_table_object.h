// tessera.PageTable: where keys lie in a pool of pages, in arrays of the user.
#pragma once

#include <nanobind/nanobind.h>

#include "call.h"
#include "tessera/attention.h"

namespace tessera::python {

struct PageTableObject {
  nb::object table, lengths, holes;
};

// None gives an empty PageTable. `op` begins the refusal.
PageTable pages_argument(Call& call, const char* op, nb::handle object);

}  // namespace tessera::python
