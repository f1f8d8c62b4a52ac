#include "server/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "model/checkpoint/json.h"
#include "model/checkpoint/quote.h"
#include "server/characters.h"

namespace tessera::server {
namespace {

using Json = nlohmann::json;

bool is_integer(const Json& value) {
  if (value.is_number_integer()) return true;
  return value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>();
}

bool has_type(const Json& value, const std::string& type) {
  if (type == "string") return value.is_string();
  if (type == "integer") return is_integer(value);
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  return value.is_null();
}

constexpr double kTwo63 = 9223372036854775808.0, kTwo64 = 2 * kTwo63;

bool is_beyond_int64(const Json& whole) {
  return whole.is_number_unsigned() &&
         whole.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()};
}

bool is_less_whole(const Json& a, const Json& b) {
  const bool a_is_beyond = is_beyond_int64(a), b_is_beyond = is_beyond_int64(b);
  if (a_is_beyond && b_is_beyond) return a.get<std::uint64_t>() < b.get<std::uint64_t>();
  if (a_is_beyond || b_is_beyond) return b_is_beyond;
  return a.get<std::int64_t>() < b.get<std::int64_t>();
}

bool has_64_bits(double whole) { return whole >= -kTwo63 && whole < kTwo64; }

Json as_whole(double whole) {
  if (whole < kTwo63) return static_cast<std::int64_t>(whole);
  return static_cast<std::uint64_t>(whole);
}

// Exact for all numbers of JSON. To nlohmann's operators, 2^64 - 1 is -1 beside a signed number,
// and 2^63 - 1 is 2^63 beside a float.
bool is_less(const Json& a, const Json& b) {
  if (a.is_number_float() && b.is_number_float()) return a.get<double>() < b.get<double>();
  if (a.is_number_float()) {
    const double floor = std::floor(a.get<double>());
    return has_64_bits(floor) ? is_less_whole(as_whole(floor), b) : floor < 0;
  }
  if (b.is_number_float()) {
    const double ceiling = std::ceil(b.get<double>());
    return has_64_bits(ceiling) ? is_less_whole(a, as_whole(ceiling)) : ceiling > 0;
  }
  return is_less_whole(a, b);
}

bool number_fits(const Json& value, const Json& schema) {
  if (schema.contains("minimum") && is_less(value, schema["minimum"])) return false;
  if (schema.contains("exclusiveMinimum") && !is_less(schema["exclusiveMinimum"], value)) {
    return false;
  }
  return !schema.contains("maximum") || !is_less(schema["maximum"], value);
}

bool count_fits(std::size_t count, const Json& schema, const char* least, const char* most) {
  if (schema.contains(least) && count < schema[least].get<std::size_t>()) return false;
  return !schema.contains(most) || count <= schema[most].get<std::size_t>();
}

bool array_fits(const Json& value, const Json& schema) {
  if (!count_fits(value.size(), schema, "minItems", "maxItems")) return false;
  if (!schema.contains("items")) return true;
  return std::all_of(value.begin(), value.end(),
                     [&](const Json& item) { return matches(item, schema["items"]); });
}

bool object_fits(const Json& value, const Json& schema) {
  if (!count_fits(value.size(), schema, "minProperties", "maxProperties")) return false;
  for (const Json& name : schema.value("required", Json::array())) {
    if (!value.contains(name.get<std::string>())) return false;
  }
  const Json properties = schema.value("properties", Json::object());
  for (const auto& [name, member] : value.items()) {
    if (properties.contains(name)) {
      if (!matches(member, properties[name])) return false;
    } else if (schema.contains("additionalProperties")) {
      const Json& others = schema["additionalProperties"];
      if (others.is_boolean() ? !others.get<bool>() : !matches(member, others)) return false;
    }
  }
  return true;
}

// Known members come first: of {"type": "image_url", "image_url": {...}} the type is to blame.
std::optional<Mismatch> mismatch_of_members(const Json& value, const Json& schema,
                                            const std::string& path) {
  const Json properties = schema.value("properties", Json::object());
  for (const auto& [name, inner] : properties.items()) {
    const auto member = value.find(name);
    if (member == value.end() || matches(*member, inner)) continue;
    return find_mismatch(*member, inner, fmt::format("{}.{}", path, name));
  }
  for (const Json& name : schema.value("required", Json::array())) {
    const auto text = name.get<std::string>();
    if (!value.contains(text)) return Mismatch{path, fmt::format("has no \"{}\"", text)};
  }
  const Json others = schema.value("additionalProperties", Json(true));
  for (const auto& [name, member] : value.items()) {
    if (properties.contains(name)) continue;
    const std::string quoted = model::in_quotes(name);
    if (others.is_boolean() && !others.get<bool>()) {
      return Mismatch{path, fmt::format("has {}, which is not supported", quoted)};
    }
    if (!others.is_boolean() && !matches(member, others)) {
      return find_mismatch(member, others, fmt::format("{}[{}]", path, quoted));
    }
  }
  return std::nullopt;
}

}  // namespace

bool matches(const Json& value, const Json& schema) {
  if (schema.contains("anyOf")) {
    const Json& options = schema["anyOf"];
    return std::any_of(options.begin(), options.end(),
                       [&](const Json& option) { return matches(value, option); });
  }
  if (schema.contains("type") && !has_type(value, schema["type"].get<std::string>())) return false;
  if (schema.contains("enum")) {
    const Json& words = schema["enum"];
    if (std::find(words.begin(), words.end(), value) == words.end()) return false;
  }
  if (value.is_number()) return number_fits(value, schema);
  if (value.is_string()) {
    const std::int64_t characters = count_characters(value.get_ref<const std::string&>());
    return count_fits(static_cast<std::size_t>(characters), schema, "minLength", "maxLength");
  }
  if (value.is_array()) return array_fits(value, schema);
  return !value.is_object() || object_fits(value, schema);
}

Mismatch find_mismatch(const Json& value, const Json& schema, const std::string& path) {
  if (schema.contains("anyOf")) {
    // Looks into the one option that is of the value's type, if there is one.
    std::vector<const Json*> options;
    for (const Json& option : schema["anyOf"]) {
      if (has_type(value, option.value("type", ""))) options.push_back(&option);
    }
    if (options.size() == 1) return find_mismatch(value, *options.front(), path);
  } else if (value.is_array() && schema.contains("items")) {
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (matches(value[i], schema["items"])) continue;
      return find_mismatch(value[i], schema["items"], fmt::format("{}[{}]", path, i));
    }
  } else if (value.is_object()) {
    if (auto inside = mismatch_of_members(value, schema, path)) return *std::move(inside);
  }
  return {path, "is " + model::describe(value)};
}

}  // namespace tessera::server
