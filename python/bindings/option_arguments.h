// Options of ops that are objects: None stands for the default, and anything else is refused in a
// sentence.
#pragma once

#include <string>

#include "call.h"
#include "tessera/dropout.h"
#include "tessera/mask.h"

namespace tessera::python {

template <typename T>
struct OptionName;  // under which the type stubs have it
template <>
struct OptionName<Mask> {
  static constexpr auto kText = nb::detail::const_name("Mask");
};
template <>
struct OptionName<Dropout> {
  static constexpr auto kText = nb::detail::const_name("Dropout");
};

template <typename T>
class OptionInput : public nb::handle {
 public:
  static constexpr auto Name = OptionName<T>::kText;
  using nb::handle::handle;
  OptionInput(nb::handle option) : nb::handle(option) {}
  static bool check_(nb::handle option) { return is_any_object(option); }
};
using MaskInput = OptionInput<Mask>;
using DropoutInput = OptionInput<Dropout>;

// `name`: "mask"; `example`: "tessera.Mask, as in mask=tessera.Mask.causal()".
template <typename T>
T option_argument(const char* op, const char* name, nb::handle option, const char* example) {
  if (option.is_none()) return {};
  if (!nb::isinstance<T>(option)) {
    refuse(std::string(op) + ": " + name + " is a " + kind_of(option) + "; give a " + example);
  }
  return nb::cast<const T&>(option);
}
// None: every key.
Mask mask_argument(const char* op, nb::handle mask);
// None: nothing is dropped.
Dropout dropout_argument(const char* op, nb::handle dropout);

}  // namespace tessera::python
