// What answers look like, as JSON Schema: the components of /openapi.json. answer_json.cc and
// routes.cc write such answers.
#pragma once

#include <nlohmann/json.hpp>

namespace tessera::server {

// By their names: Completion, CompletionChunk, ChatCompletion, ChatCompletionChunk, Model, Models,
// Health, Tokens, Text, Error.
const nlohmann::json& answer_schemas();

}  // namespace tessera::server
