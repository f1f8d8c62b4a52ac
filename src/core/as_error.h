// What the standard library throws, as the one exception type of Tessera.
#pragma once

#include <string_view>
#include <utility>

namespace tessera {

// To be called in a catch block: throws what was caught again. A failed allocation and a failure of
// the file system become an Error that says what was being done; everything else stays as it is.
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
