// Options of ops that are objects: None stands for the default, and anything else is refused in a
// sentence.
#pragma once

#include "call.h"
#include "tessera/dropout.h"
#include "tessera/mask.h"

namespace tessera::python {

class MaskInput : public nb::handle {
 public:
  static constexpr auto Name = nb::detail::const_name("Mask");
  using nb::handle::handle;
  MaskInput(nb::handle mask) : nb::handle(mask) {}
  static bool check_(nb::handle mask) { return is_any_object(mask); }
};

class DropoutInput : public nb::handle {
 public:
  static constexpr auto Name = nb::detail::const_name("Dropout");
  using nb::handle::handle;
  DropoutInput(nb::handle dropout) : nb::handle(dropout) {}
  static bool check_(nb::handle dropout) { return is_any_object(dropout); }
};

// None: every key.
Mask mask_argument(const char* op, nb::handle mask);
// None: nothing is dropped.
Dropout dropout_argument(const char* op, nb::handle dropout);

}  // namespace tessera::python
