// Arguments and results under the names that the type stubs have for them. What they hold is any
// object: call.h looks at it.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

namespace tessera::python {

namespace nb = nanobind;

inline bool is_any_object(nb::handle) { return true; }

// An array to read: of any library with DLPack, or None where it may be left out. python/stubs.pat
// has the protocol.
class ArrayInput : public nb::handle {
 public:
  static constexpr auto Name = nb::detail::const_name("Array");
  using nb::handle::handle;
  ArrayInput(nb::handle array) : nb::handle(array) {}
  static bool check_(nb::handle array) { return is_any_object(array); }
};

// An array to write to. None becomes a new one.
class ArrayOutput : public nb::object {
  NB_OBJECT(ArrayOutput, nb::object, "Array", is_any_object)
};

// What an op gives back: arrays of the caller's library, whose types only the caller knows.
class Result : public nb::object {
  NB_OBJECT(Result, nb::object, "typing.Any", is_any_object)
  Result(nb::object result) : nb::object(std::move(result)) {}
};

}  // namespace tessera::python
