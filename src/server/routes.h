// Which path and method is answered how.
#pragma once

#include <boost/beast/http/verb.hpp>
#include <span>
#include <string>
#include <string_view>

#include "server/http.h"
#include "server/server_state.h"

namespace tessera::server {

struct Call {
  const HttpRequest& request;
  std::string_view path;
  const ServerState& state;
};

struct Route {
  enum class Work {
    reply,       // quick: on the network's thread
    worker,      // takes time: on the thread that reads requests
    completion,  // by the engine
    chat,
  };
  http::verb method;
  std::string_view path;  // one that ends with '/' stands for all paths that begin so
  Work work;
  Reply (*answer)(const Call&) = nullptr;  // of reply and worker
  bool is_open = false;                    // needs no API key
  bool needs_model = true;
};

std::span<const Route> routes();
// Throws ApiError 404 or 405. HEAD is answered as GET.
const Route& find_route(http::verb method, std::string_view path);
// "GET, HEAD" of a path; empty where there is none.
std::string allowed_methods(std::string_view path);

}  // namespace tessera::server
