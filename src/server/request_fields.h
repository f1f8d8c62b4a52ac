// The one table of what a request may say: it names the fields, checks their values and describes
// them in /openapi.json.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::server {

struct RequestField {
  std::string name;
  nlohmann::json schema;
  std::string accepted;  // in a sentence: "it must be ..."
  std::string help;
  bool required = false;
};

enum class Body { completion, chat, tokenize, detokenize };

const std::vector<RequestField>& request_fields(Body body);

// A member that is there and not null, or null.
const nlohmann::json* member(const nlohmann::json& object, const char* name);
bool flag(const nlohmann::json& object, const char* name, bool otherwise = false);

// Throws ApiError for fields that are missing, unknown or not as the table says. Members that are
// null count as missing.
void check_fields(const nlohmann::json& request, Body body);

}  // namespace tessera::server
