// tessera.Rope: the frequencies of a rotary embedding, in an array of the user.
#pragma once

#include <nanobind/nanobind.h>

#include "call.h"
#include "tessera/rotary.h"

namespace tessera::python {

struct RopeObject {
  nb::object inv_freq;
  RopeStyle style = RopeStyle::half_split;
};

// None gives an empty Rope.
Rope rope_argument(Call& call, const char* name, nb::handle object);

}  // namespace tessera::python
