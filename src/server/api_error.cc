#include "server/api_error.h"

#include <exception>
#include <string_view>

#include "core/as_error.h"
#include "model/checkpoint/quote.h"

namespace tessera::server {
namespace {

constexpr int kRetrySeconds = 1;  // a queue of short answers moves on in about that time

std::string_view error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 429:
      return "rate_limit_error";
    case 501:
    case 505:
      return "invalid_request_error";  // what the client sent, not what went wrong here
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

nlohmann::json text_or_null(const std::string& text) {
  return text.empty() ? nlohmann::json() : nlohmann::json(text);
}

}  // namespace

ApiError api_error(ErrorCode code, const std::string& message) {
  ApiError error(500, message);
  switch (code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::unsupported:
    case ErrorCode::overflow:
    case ErrorCode::file:  // the only file of a request is its body
      error.status = 400;
      break;
    case ErrorCode::busy:
      error.status = 429;
      error.retry_after_seconds = kRetrySeconds;
      break;
    case ErrorCode::out_of_memory:
      error.status = 503;
      error.retry_after_seconds = kRetrySeconds;
      break;
    case ErrorCode::device:
      break;
  }
  return error;
}

ApiError shutting_down() { return {503, "the server is shutting down"}; }

ApiError no_such_model(std::string_view asked, std::string_view served) {
  return {404,
          fmt::format("there is no model {}; this server has {}", model::in_quotes(asked),
                      model::in_quotes(served)),
          "model", "model_not_found"};
}

ApiError caught_error() {
  try {
    rethrow_as_error("answering a request");
  } catch (const ApiError& error) {
    return error;
  } catch (const Error& error) {
    return api_error(error.code(), error.what());
  } catch (const std::exception& error) {
    return {500, fmt::format("something went wrong in the server: {}", error.what())};
  }
}

nlohmann::json error_json(const ApiError& error) {
  return {{"error",
           {{"message", error.what()},
            {"type", error_type(error.status)},
            {"param", text_or_null(error.param)},
            {"code", text_or_null(error.code)}}}};
}

}  // namespace tessera::server
