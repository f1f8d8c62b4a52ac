#include "server/schema.h"

#include <algorithm>
#include <cmath>
#include <string>

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

bool number_fits(const Json& value, const Json& schema) {
  if (schema.contains("minimum") && value < schema["minimum"]) return false;
  if (schema.contains("exclusiveMinimum") && value <= schema["exclusiveMinimum"]) return false;
  return !schema.contains("maximum") || value <= schema["maximum"];
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

}  // namespace tessera::server
