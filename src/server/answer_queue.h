// Brings the engine's events to the connection that waits for them, from the engine's thread to the
// network's.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "server/http.h"
#include "server/task.h"
#include "tessera/engine.h"

namespace tessera::server {

class AnswerQueue : public std::enable_shared_from_this<AnswerQueue> {
 public:
  struct Item {
    std::int64_t prompt = 0;  // which of the request's prompts
    Event event{};
  };

  // `most`: items that may wait. on_overflow runs on the network's thread.
  AnswerQueue(asio::io_context& io, std::size_t most, std::function<void()> on_overflow);

  // On the engine's thread. Throws, which cancels the request, once too many items wait.
  void push(std::int64_t prompt, const Event& event);

  // On the network's thread: waits until there are items or wake() was called.
  Task<std::vector<Item>> take();
  void wake();

 private:
  asio::io_context& io_;
  asio::steady_timer changed_;
  bool woken_ = false;
  const std::size_t most_;
  const std::function<void()> on_overflow_;

  std::mutex mutex_;  // guards what follows
  std::vector<Item> items_;
  bool is_told_ = false;  // the network's thread knows of items_
  bool overflowed_ = false;
};

}  // namespace tessera::server
