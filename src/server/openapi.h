// The OpenAPI document of the server, made from the tables of fields and routes.
#pragma once

#include <nlohmann/json.hpp>

namespace tessera::server {

const nlohmann::json& openapi_document();

}  // namespace tessera::server
