// One connection: reads requests one after the other, and answers each.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "server/access_log.h"
#include "server/deadline.h"
#include "server/http.h"
#include "server/request_head.h"
#include "server/routes.h"
#include "server/server_state.h"
#include "server/task.h"

namespace tessera::server {

class AnswerQueue;

class Connection {
 public:
  Connection(tcp::socket socket, ServerState& state);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Until one side closes. Keeps the connection alive.
  static Task<void> run(std::shared_ptr<Connection> connection);

  // While it waits for a request: ends it.
  void end_if_idle();
  // An answer in progress is looked at again (ServerState::ending).
  void wake();
  void close();

 private:
  using Clock = std::chrono::steady_clock;

  // What is known of a request before its body has been read.
  struct Head {
    unsigned version = 11;
    bool keep_alive = false;
    bool is_head = false;  // HEAD: the answer has no body
    std::string origin{};
    std::string asked_headers{};       // that a page of another origin wants to send
    std::string_view route = "other";  // for the metrics
    Clock::time_point began{};
    LogEntry log{};
  };

  // False: the connection ends.
  Task<bool> serve_one();
  Task<bool> wait_for_request();
  Task<void> read_head(RequestParser& parser, error_code& error);
  Task<bool> refuse_head(error_code error);
  Stage stage() const;
  Task<bool> read_body(RequestParser& parser, Head& head);
  Task<bool> answer(const Route& route, const HttpRequest& request, std::string_view path,
                    Head& head);

  // ---- text (generate.cc) ----
  struct Answering;
  Task<bool> generate(const HttpRequest& request, bool chat, Head& head);
  Task<void> pass_on_events(Answering& now, const Head& head);
  Task<bool> stop_watching(Answering& now);
  Task<bool> end_answer(Answering& now, Head& head);

  Task<bool> send(Reply reply, Head& head);
  Task<bool> send_stream_head(const Head& head, bool chunked);
  Task<bool> send_piece(std::string piece, bool chunked);
  Task<bool> send_stream_end(bool chunked);
  template <typename Fields>
  void add_headers(Fields& fields, const Head& head) const;
  void count(const Head& head, int status);
  Task<void> linger();

  tcp::socket socket_;
  ServerState& state_;
  Deadline deadline_;
  beast::flat_buffer buffer_;
  std::string client_;
  bool is_idle_ = false, is_first_ = true;
  // The client has closed its direction. Reading again would wait for ever: Asio reads a socket
  // whose end it has seen only once the system tells of more.
  bool at_end_ = false;
  std::shared_ptr<AnswerQueue> queue_;  // of the answer in progress
};

}  // namespace tessera::server
