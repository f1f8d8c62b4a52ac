// Throwing an Error with a formatted message.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "tessera/error.h"

namespace tessera {

template <typename... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tessera
