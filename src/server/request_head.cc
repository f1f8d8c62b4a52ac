#include "server/request_head.h"

#include <cstdint>
#include <string>
#include <string_view>

#include "model/checkpoint/quote.h"

namespace tessera::server {
namespace {

bool is_json(std::string_view type) {
  std::string name(type.substr(0, type.find(';')));
  while (!name.empty() && name.back() == ' ') name.pop_back();
  return beast::iequals(name, "application/json");
}

}  // namespace

void set_limits(RequestParser& parser, const ServerLimits& limits) {
  parser.header_limit(static_cast<std::uint32_t>(limits.header_bytes));
  parser.body_limit(limits.body_bytes);
}

void parse_last(RequestParser& parser, beast::flat_buffer& buffer, error_code& error) {
  parser.eager(true);
  while (!error && !parser.is_done() && buffer.size() > 0) {
    buffer.consume(parser.put(buffer.data(), error));
  }
  if (error == http::error::need_more || (!error && !parser.is_done())) {
    error = http::error::partial_message;
  }
}

bool is_http_error(error_code error) {
  return error.category() == http::make_error_code(http::error::bad_method).category();
}

ApiError parse_error(error_code error) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return {431, "the headers are too large"};
  }
  if (error == http::error::body_limit) return {413, "the body is too large"};
  if (error == http::error::bad_version) {
    return {505, "this version of HTTP is not supported; use HTTP/1.1"};
  }
  return {400, fmt::format("this is not a request that HTTP allows: {}", error.message())};
}

std::optional<ApiError> unclear_request(const HttpRequest& request) {
  const std::size_t codings = request.count(http::field::transfer_encoding);
  const bool is_old = request.version() < 11;
  if (codings > 0 && is_old) {
    return ApiError(400, "HTTP/1.0 has no Transfer-Encoding; send a Content-Length");
  }
  if (codings > 1 ||
      (codings == 1 && !beast::iequals(request[http::field::transfer_encoding], "chunked"))) {
    return ApiError(501, "the only Transfer-Encoding that is supported is chunked");
  }
  const std::size_t hosts = request.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && !is_old)) {
    return ApiError(400, fmt::format("the request has {} Host headers; HTTP wants one", hosts));
  }
  return std::nullopt;
}

void check_head(const HttpRequest& request, const Route& route, const ApiKey& key, Stage stage) {
  if (!route.is_open && !key.accepts(view(request[http::field::authorization]))) {
    throw ApiError(401, "this server wants an API key: send \"Authorization: Bearer KEY\"", {},
                   "invalid_api_key");
  }
  if (route.needs_model && stage != Stage::ready) {
    ApiError error(503, stage == Stage::draining
                            ? "the server is shutting down"
                            : "the model is still being loaded; GET /health tells how far it is");
    error.retry_after_seconds = 1;
    throw error;
  }
  if (route.method == http::verb::post && !is_json(view(request[http::field::content_type]))) {
    throw ApiError(415, "the body must be JSON: send \"Content-Type: application/json\"");
  }
  const beast::string_view coding = request[http::field::content_encoding];
  if (!coding.empty() && !beast::iequals(coding, "identity")) {
    throw ApiError(415, fmt::format("Content-Encoding is {}; send the body without compression",
                                    model::in_quotes(view(coding))));
  }
  const beast::string_view expect = request[http::field::expect];
  if (!expect.empty() && !beast::iequals(expect, "100-continue")) {
    throw ApiError(417, "the only expectation that is met is 100-continue");
  }
}

std::string_view allowed_headers(std::string_view asked) {
  const bool is_list = !asked.empty() && asked.size() <= kMostAskedHeaderBytes &&
                       http::validate_list(http::opt_token_list({asked.data(), asked.size()}));
  return is_list ? asked : "authorization, content-type";
}

}  // namespace tessera::server
