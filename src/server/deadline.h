// Ends what a socket is doing when its time is over.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>

#include "server/http.h"

namespace tessera::server {

class Deadline {
 public:
  explicit Deadline(tcp::socket& socket)
      : timer_(socket.get_executor()), shared_(std::make_shared<Shared>(Shared{&socket})) {}
  ~Deadline() { shared_->socket = nullptr; }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

  // The operations that run when the time is over end with an error. Takes the place of an earlier
  // call.
  void set(std::chrono::milliseconds time) {
    const int turn = ++shared_->turn;
    shared_->passed = false;
    timer_.expires_after(time);
    timer_.async_wait([shared = shared_, turn](error_code error) {
      if (error || shared->turn != turn || shared->socket == nullptr) return;
      shared->passed = true;
      error_code ignored;
      shared->socket->cancel(ignored);
    });
  }
  void clear() {
    ++shared_->turn;
    timer_.cancel();
  }
  bool passed() const { return shared_->passed; }

 private:
  // The timer's handler may run after the connection has gone.
  struct Shared {
    tcp::socket* socket = nullptr;
    int turn = 0;
    bool passed = false;
  };

  asio::steady_timer timer_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace tessera::server
