// The OpenAPI document of the server, made from the tables of fields and routes.
#pragma once

#include <nlohmann/json.hpp>

namespace tessera::server {

// `wants_key`: the server has an API key, so most operations want it.
const nlohmann::json& openapi_document(bool wants_key);

}  // namespace tessera::server
