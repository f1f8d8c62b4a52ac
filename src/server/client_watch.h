// Looks after a client that waits for its answer: notices when it goes away, and keeps what it
// sends meanwhile for the next request.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>

#include "server/http.h"
#include "server/task.h"

namespace tessera::server {

class ClientWatch {
 public:
  // Begins to watch. on_gone runs once, if the client goes away. `at_end`: it had closed its
  // direction before. `may_probe`: it understands interim answers (HTTP/1.1), and nothing of the
  // answer has been sent before stop().
  ClientWatch(tcp::socket& socket, beast::flat_buffer& buffer, bool at_end, bool may_probe,
              std::function<void()> on_gone);

  // Ends the watch; nothing else may use the socket at that moment. Needed before the end of life
  // of this object.
  Task<void> stop();
  // From now on the answer is being sent: its own bytes show whether the client is there.
  void stop_probing() { shared_->may_probe = false; }
  bool is_gone() const { return shared_->is_gone; }
  // The client has closed its direction: nothing more can be read.
  bool at_end() const { return shared_->at_end; }

 private:
  // What the watching coroutine and this object share.
  struct Shared {
    Shared(tcp::socket& socket_, beast::flat_buffer& buffer_, bool at_end_, bool may_probe_,
           std::function<void()> on_gone_)
        : socket(socket_),
          buffer(buffer_),
          timer(socket_.get_executor()),
          ended(socket_.get_executor()),
          knows_interim(may_probe_),
          may_probe(may_probe_),
          at_end(at_end_),
          on_gone(std::move(on_gone_)) {}
    tcp::socket& socket;
    beast::flat_buffer& buffer;
    asio::steady_timer timer, ended;
    const bool knows_interim;  // answers, so that it may be probed
    bool may_probe;
    bool at_end;
    bool is_gone = false, is_stopping = false, is_running = true;
    std::function<void()> on_gone;
  };

  static Task<void> watch(std::shared_ptr<Shared> shared);
  static Task<void> probe(Shared& shared);

  std::shared_ptr<Shared> shared_;
};

}  // namespace tessera::server
