// Tensor and Device as arguments of fmt::format, written as their to_string() writes them. An op
// passes them to require() as they are: the text is made only if the call is refused.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "tessera/device.h"
#include "tessera/tensor.h"

namespace tessera {

template <typename T>
struct ToStringFormatter : fmt::formatter<std::string_view> {
  auto format(const T& value, fmt::format_context& context) const {
    return fmt::formatter<std::string_view>::format(to_string(value), context);
  }
};

}  // namespace tessera

template <>
struct fmt::formatter<tessera::Tensor> : tessera::ToStringFormatter<tessera::Tensor> {};
template <>
struct fmt::formatter<tessera::Device> : tessera::ToStringFormatter<tessera::Device> {};
