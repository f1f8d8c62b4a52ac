// An HTTP server with the endpoints of the OpenAI API, in front of an Engine.
//
//   clients --> Connection (one coroutine each) --> routes --> Engine::submit
//      ^            one thread for the network        |            |
//      |                                    a thread that reads    |  events, on the engine's
//      thread
//      +------------ AnswerQueue <------------------------------ --+
//
// Threads: the functions of Server are for the thread that made it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "server/access_log.h"
#include "server/limits.h"
#include "server/served_model.h"

namespace tessera::server {

struct ServerOptions {
  std::string host = "127.0.0.1";  // an address or a name
  std::uint16_t port = 8080;       // 0: a free one
  std::string api_key{};           // empty: none is asked for
  std::string cors{};              // the origin whose pages may use the server; "*": all
  ServerLimits limits{};
  LogStyle log = LogStyle::text;
  bool log_prompts = false;
};

class Server {
 public:
  // Listens from now on. /health tells of the loading, everything else answers with 503.
  explicit Server(ServerOptions options);
  // Breaks off what is left.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::string address() const;  // "http://127.0.0.1:8080"
  bool is_local() const;        // only this machine can reach it
  void set_progress(double share);
  // Answers requests from now on. `served` must outlive stop().
  void open(const ServedModel& served);

  // The number of SIGINT, SIGTERM and SIGHUP that came so far.
  int signals() const;
  // Waits for the first one.
  void wait_for_signal() const;
  // Refuses new requests, and waits until all answers have ended, the time is over or another
  // signal comes.
  void drain(Engine& engine, std::chrono::milliseconds time);
  // Ends all connections and threads. The engine may end after that, not before.
  void stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::server
