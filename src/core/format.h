// Tensor, Device and Weight as arguments of fmt::format, written as their to_string() writes them.
// An op hands them to require() as they are: the text is made only where the call is refused.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "tessera/device.h"
#include "tessera/tensor.h"
#include "tessera/weight.h"

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
template <>
struct fmt::formatter<tessera::Weight> : tessera::ToStringFormatter<tessera::Weight> {};
