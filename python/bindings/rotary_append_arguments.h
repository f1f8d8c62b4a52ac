// The arguments that rotary_append() and append_attention() share.
#pragma once

#include <nanobind/nanobind.h>

#include "call.h"
#include "tessera/rotary_append.h"

namespace tessera::python {

// As Python names and passes them.
struct RotaryAppendObjects {
  nb::handle q, k, v, positions, rope;
  bool rotate_keys = true;
  nb::handle slots, k_pages, v_pages, k_scales, v_scales;
};

// Makes a q_out like q where none is given.
RotaryAppendArgs rotary_append_arguments(Call& call, const RotaryAppendObjects& objects,
                                         nb::object& q_out);

}  // namespace tessera::python
