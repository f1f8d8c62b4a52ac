// The arguments of a call by the names of the parameters.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "model/chat/value.h"

namespace tessera::model::chat {

// Assigns each argument to its parameter; null for a parameter without one. Refuses arguments that
// have no parameter, or share one.
void place_arguments(const Run& run, const CallArguments& arguments, std::string_view function,
                     std::span<const std::string_view> parameters, std::span<const Value*> placed);

template <std::size_t N>
std::array<const Value*, N> placed(const Run& run, const CallArguments& arguments,
                                   std::string_view function,
                                   const std::array<std::string_view, N>& parameters) {
  std::array<const Value*, N> values{};
  place_arguments(run, arguments, function, parameters, values);
  return values;
}

// The value of an argument that must be there, or that may be missing.
Text text_argument(const Run& run, const Value* value, std::string_view function);
std::int64_t integer_argument(const Run& run, const Value* value, std::int64_t otherwise,
                              std::string_view function);
inline bool truth_argument(const Value* value, bool otherwise) {
  return value == nullptr ? otherwise : is_true(*value);
}

}  // namespace tessera::model::chat
