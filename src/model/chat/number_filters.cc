#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "model/chat/arguments.h"
#include "model/chat/filters.h"
#include "model/chat/operators.h"
#include "model/chat/text_parts.h"

namespace tessera::model::chat {
namespace {

// The number that Python's int() or float() reads from a string.
template <typename T>
std::optional<T> number_in(Run& run, const Text& text) {
  const Text inside = stripped(run, text, nullptr, Side::both);
  std::string digits;
  for (const char c : inside.view()) {
    if (c != '_') digits += c;
  }
  const char* begin = digits.data();
  const char* end = begin + digits.size();
  if (begin != end && *begin == '+') ++begin;
  T number{};
  const auto [stop, error] = std::from_chars(begin, end, number);
  if (error == std::errc::result_out_of_range && stop == end) {
    run.refuse("a number does not fit into 64 bits");
  }
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

std::optional<std::int64_t> truncated(const Run& run, double number) {
  if (!std::isfinite(number)) return std::nullopt;
  if (std::abs(number) >= 9.2e18) run.refuse("a number does not fit into 64 bits");
  return static_cast<std::int64_t>(number);
}

Value int_filter(Run& run, const Value& value, const CallArguments& arguments) {
  const auto [otherwise, base] = placed<2>(run, arguments, "int", {"default", "base"});
  if (integer_argument(run, base, 10, "int") != 10) run.refuse("int supports only base 10");
  if (const auto* undefined = value.as<Undefined>()) run.refuse("{}", *undefined->reason);
  std::optional<std::int64_t> result;
  if (is_integer(value)) {
    result = integer_of(value);
  } else if (is_number(value)) {
    result = truncated(run, number_of(value));
  } else if (const auto* text = value.as<Text>()) {
    result = number_in<std::int64_t>(run, *text);
    if (!result) {
      if (const auto number = number_in<double>(run, *text)) result = truncated(run, *number);
    }
  }
  if (result) return *result;
  return otherwise == nullptr ? Value(std::int64_t{0}) : *otherwise;
}

Value float_filter(Run& run, const Value& value, const CallArguments& arguments) {
  const auto [otherwise] = placed<1>(run, arguments, "float", {"default"});
  if (const auto* undefined = value.as<Undefined>()) run.refuse("{}", *undefined->reason);
  if (is_number(value)) return number_of(value);
  if (const auto* text = value.as<Text>()) {
    if (const auto number = number_in<double>(run, *text)) return *number;
  }
  return otherwise == nullptr ? Value(0.0) : *otherwise;
}

Value abs_filter(Run& run, const Value& value, const CallArguments& arguments) {
  placed<0>(run, arguments, "abs", {});
  const Value positive = unary_value(run, UnaryOp::positive, value);
  return number_of(positive) < 0 ? unary_value(run, UnaryOp::negative, positive) : positive;
}

Value round_filter(Run& run, const Value& value, const CallArguments& arguments) {
  const auto [precision, method] = placed<2>(run, arguments, "round", {"precision", "method"});
  if (!is_number(value)) run.refuse("round needs a number, not {}", type_name(value));
  const std::int64_t digits = integer_argument(run, precision, 0, "round");
  if (digits < 0 || digits > 30) run.refuse("round takes 0 to 30 digits, not {}", digits);
  const std::string_view how =
      method == nullptr ? "common" : text_argument(run, method, "round").view();
  const double number = number_of(value);
  if (how == "common") {
    if (is_integer(value)) return integer_of(value);
    // Printing rounds the number as it is stored, ties to even, as Python does.
    const std::string text = fmt::format("{:.{}f}", number, static_cast<int>(digits));
    return std::strtod(text.c_str(), nullptr);
  }
  if (how != "ceil" && how != "floor") run.refuse("round supports only common, ceil and floor");
  const double scale = std::pow(10.0, static_cast<double>(digits));
  return (how == "ceil" ? std::ceil(number * scale) : std::floor(number * scale)) / scale;
}

}  // namespace

FilterFunction number_filter(std::string_view name) {
  if (name == "int") return int_filter;
  if (name == "float") return float_filter;
  if (name == "abs") return abs_filter;
  return name == "round" ? round_filter : nullptr;
}

}  // namespace tessera::model::chat
