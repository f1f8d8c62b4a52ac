// A command line that is wrong in a way that its parser cannot see: it contradicts itself, or
// leaves something out. The program prints the sentence with the command's name, and exits with
// status 2.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

namespace tessera::app {

class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename... Args>
[[noreturn]] void fail_usage(fmt::format_string<Args...> format, Args&&... args) {
  throw UsageError(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tessera::app
