// The getters: an error has the file, the key, its value and what it should be.
#include "model/checkpoint/json.h"

#include <cmath>
#include <utility>

#include "core/fail.h"
#include "model/checkpoint/quote.h"

namespace tessera::model {
namespace {

[[noreturn]] void fail_wrong(const std::string& where, std::string_view key, const Json& value,
                             const std::string& expected) {
  fail(ErrorCode::file, "{}: {} is {}, it must be {}", where, key, describe(value), expected);
}

[[noreturn]] void fail_missing(const std::string& where, std::string_view key,
                               const std::string& expected) {
  fail(ErrorCode::file, "{}: {} is missing, it must be {}", where, key, expected);
}

std::string whole_number(std::int64_t low, std::int64_t high) {
  return fmt::format("a whole number from {} to {}", low, high);
}

// Files write whole numbers as 64 and as 64.0.
std::optional<std::int64_t> whole(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > std::uint64_t{INT64_MAX}) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number_float()) {
    const auto number = value.get<double>();
    // Beyond 2^53, several whole numbers round to the same double.
    if (std::abs(number) <= 0x1p53 && std::trunc(number) == number) {
      return static_cast<std::int64_t>(number);
    }
  }
  return std::nullopt;
}

}  // namespace

std::string describe(const Json& value) {
  if (value.is_string()) return in_quotes(value.get_ref<const std::string&>());
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  return value.dump();
}

JsonView::JsonView(const Json& object, std::string where)
    : object_(&object), where_(std::move(where)) {
  if (!object.is_object()) {
    fail(ErrorCode::file, "{} is {}, it must be an object", where_, describe(object));
  }
}

Json::const_iterator JsonView::look_up(std::string_view key) const {
  if (asked_) asked_->emplace(key);
  return object_->find(key);
}

const Json* JsonView::find(std::string_view key) const {
  const auto member = look_up(key);
  return member == object_->end() || member->is_null() ? nullptr : &*member;
}

bool JsonView::has(std::string_view key) const { return find(key) != nullptr; }

bool JsonView::lacks(std::string_view key) const { return look_up(key) == object_->end(); }

std::int64_t JsonView::integer(std::string_view key, std::int64_t low, std::int64_t high) const {
  const auto value = optional_integer(key, low, high);
  if (!value) fail_missing(where_, key, whole_number(low, high));
  return *value;
}

std::optional<std::int64_t> JsonView::optional_integer(std::string_view key, std::int64_t low,
                                                       std::int64_t high) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto number = whole(*value);
  if (!number || *number < low || *number > high) {
    fail_wrong(where_, key, *value, whole_number(low, high));
  }
  return number;
}

std::optional<double> JsonView::optional_number(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) fail_wrong(where_, key, *value, "a number");
  return value->get<double>();
}

std::optional<bool> JsonView::optional_boolean(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) fail_wrong(where_, key, *value, "true or false");
  return value->get<bool>();
}

std::string JsonView::string(std::string_view key) const {
  auto value = optional_string(key);
  if (!value) fail_missing(where_, key, "a string");
  return *std::move(value);
}

std::optional<std::string> JsonView::optional_string(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail_wrong(where_, key, *value, "a string");
  return value->get<std::string>();
}

std::optional<JsonView> JsonView::optional_object(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) fail_wrong(where_, key, *value, "an object");
  return JsonView(*value, fmt::format("{}, {}", where_, key));
}

std::vector<std::string> JsonView::strings(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return {};
  if (!value->is_array()) fail_wrong(where_, key, *value, "an array of strings");
  std::vector<std::string> texts;
  texts.reserve(value->size());
  for (const Json& item : *value) {
    if (!item.is_string()) {
      fail_wrong(where_, fmt::format("{}[{}]", key, texts.size()), item, "a string");
    }
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

}  // namespace tessera::model
