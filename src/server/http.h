// The few names of Boost.Asio and Boost.Beast that the server uses, and its replies.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api_error.h"

namespace tessera::server {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

using HttpRequest = http::request<http::string_body>;

struct Reply {
  int status = 200;
  std::string type = "application/json";
  std::string body{};
  std::vector<std::pair<std::string, std::string>> headers{};
};

Reply json_reply(const nlohmann::json& json, int status = 200);
Reply error_reply(const ApiError& error);

// JSON as bytes. Texts of models are UTF-8; a name of a folder need not be.
std::string dump(const nlohmann::json& json);
// "data: {...}\n\n"
std::string sse_event(const std::string& data);

// The time, as the header Date has it.
std::string http_date();

// The path of a target, without its query. A target may be a whole address, as proxies send it.
std::string_view path_of(std::string_view target);
// "a%2Fb" as "a/b". What is no escape stays as it is.
std::string unescaped(std::string_view path);

inline std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace tessera::server
