#include "server/http.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <system_error>

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

std::string http_date() {
  return fmt::format("{:%a, %d %b %Y %H:%M:%S} GMT", fmt::gmtime(std::time(nullptr)));
}

std::string_view path_of(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    const std::string_view begin = target.substr(0, scheme.size());
    if (!beast::iequals({begin.data(), begin.size()}, {scheme.data(), scheme.size()})) continue;
    target.remove_prefix(std::min(target.find_first_of("/?#", scheme.size()), target.size()));
    if (!target.starts_with('/')) return "/";
  }
  return target.substr(0, target.find_first_of("?#"));
}

std::string unescaped(std::string_view path) {
  std::string text;
  text.reserve(path.size());
  for (std::size_t i = 0; i < path.size(); ++i) {
    unsigned byte = 0;
    const std::string_view digits = path.substr(std::min(i + 1, path.size()), 2);
    const char* end = digits.data() + digits.size();
    const auto [read, error] = std::from_chars(digits.data(), end, byte, 16);
    const bool is_escape = path[i] == '%' && digits.size() == 2 && error == std::errc();
    if (is_escape && read == end) {
      text += static_cast<char>(byte);
      i += 2;
    } else {
      text += path[i];
    }
  }
  return text;
}

}  // namespace tessera::server
