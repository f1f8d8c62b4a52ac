// Turns what the standard library throws into Tessera's one exception type.
#pragma once

#include <string_view>
#include <utility>

namespace tessera {

// Call it in a catch block: it rethrows what was caught. A failed allocation and a failure of the
// file system become an Error that says what was being done; everything else stays as it is.
[[noreturn]] void rethrow_as_error(std::string_view doing);

// Runs a step of the library: as_error("loading the model", [&] { ... }).
template <typename Step>
decltype(auto) as_error(std::string_view doing, Step&& step) {
  try {
    return std::forward<Step>(step)();
  } catch (...) {
    rethrow_as_error(doing);
  }
}

}  // namespace tessera
