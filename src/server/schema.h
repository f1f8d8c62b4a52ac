// The part of JSON Schema that describes requests. The table of fields (request_fields.h) is
// written in it: the same words check a request and fill /openapi.json.
#pragma once

#include <nlohmann/json.hpp>

namespace tessera::server {

// Knows type, enum, minimum, exclusiveMinimum, maximum, minLength, maxLength, items, minItems,
// maxItems, properties, required, additionalProperties, maxProperties and anyOf.
bool matches(const nlohmann::json& value, const nlohmann::json& schema);

}  // namespace tessera::server
