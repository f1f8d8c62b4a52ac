// What the connections of a server share. Used on the network's thread only.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <set>
#include <utility>

#include "server/api_key.h"
#include "server/http.h"
#include "server/metrics.h"
#include "server/served_model.h"
#include "server/server.h"

namespace tessera::server {

class Connection;

struct ServerState {
  explicit ServerState(ServerOptions options_)
      : options(std::move(options_)), key(options.api_key) {}

  const ServerOptions options;
  const ApiKey key;
  asio::io_context io{1};
  // Read and encode requests, so that a long prompt does not hold up the streams of others.
  asio::thread_pool workers{1};
  Metrics metrics{};
  const ServedModel* served = nullptr;  // null: the model is being loaded
  double progress = 0;                  // of loading it
  bool draining = false;                // new requests are refused
  bool ending = false;                  // answers in progress are broken off
  std::set<Connection*> connections{};
};

}  // namespace tessera::server
