// The head of a request: how it is read, and what is refused before its body comes.
#pragma once

#include <optional>
#include <string_view>

#include "server/api_error.h"
#include "server/api_key.h"
#include "server/http.h"
#include "server/limits.h"
#include "server/routes.h"

namespace tessera::server {

using RequestParser = http::request_parser<http::string_body>;

// The caps on the bytes of headers and of a body.
void set_limits(RequestParser& parser, const ServerLimits& limits);

// Reads a request of a client that sends no more: all of it lies in the buffer, or it is
// incomplete.
void parse_last(RequestParser& parser, beast::flat_buffer& buffer, error_code& error);

// True where the bytes are at fault, and not the connection.
bool is_http_error(error_code error);
// What is wrong with bytes that Beast refuses.
ApiError parse_error(error_code error);

// A request whose end or whose host is unclear: two servers can read it as different requests. The
// connection has to end with it.
std::optional<ApiError> unclear_request(const HttpRequest& request);

enum class Stage { loading, ready, draining };

// Throws ApiError for everything that needs no body.
void check_head(const HttpRequest& request, const Route& route, const ApiKey& key, Stage stage);

// The headers that a page of another origin may send: those it asks for. Clients of the API add
// some of their own to each request, such as x-stainless-os.
std::string_view allowed_headers(std::string_view asked);

}  // namespace tessera::server
