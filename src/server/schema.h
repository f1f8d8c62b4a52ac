// The part of JSON Schema that describes requests. The table of fields (request_fields.h) is
// written in it: the same words check a request and fill /openapi.json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tessera::server {

// Knows type, enum, minimum, exclusiveMinimum, maximum, minLength, maxLength, items, minItems,
// maxItems, properties, required, additionalProperties, maxProperties and anyOf.
bool matches(const nlohmann::json& value, const nlohmann::json& schema);

// The first thing inside a value that is not as its schema says.
struct Mismatch {
  std::string path{};  // from the value on: "[0].content[1].type"; empty: the value itself
  std::string what{};  // "is 5", "has no \"content\""
};
// Of a value that does not match.
Mismatch find_mismatch(const nlohmann::json& value, const nlohmann::json& schema,
                       const std::string& path = {});

}  // namespace tessera::server
