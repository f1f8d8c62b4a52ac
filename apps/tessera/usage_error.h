// A command line that contradicts itself, or leaves something out, in a way that its parser cannot
// see. The program prints it with the command's name, and ends as for any other wrong usage.
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
