#include "server/http.h"

namespace tessera::server {

std::string dump(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Reply json_reply(const nlohmann::json& json, int status) {
  return {.status = status, .body = dump(json)};
}

Reply error_reply(const ApiError& error) {
  Reply reply = json_reply(error_json(error), error.status);
  if (error.retry_after_seconds > 0) {
    reply.headers.emplace_back("Retry-After", std::to_string(error.retry_after_seconds));
  }
  if (error.status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

std::string sse_event(const std::string& data) { return "data: " + data + "\n\n"; }

std::string_view path_of(std::string_view target) {
  return target.substr(0, target.find_first_of("?#"));
}

}  // namespace tessera::server
