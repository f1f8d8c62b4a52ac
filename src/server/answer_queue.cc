#include "server/answer_queue.h"

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <stdexcept>
#include <utility>

namespace tessera::server {

AnswerQueue::AnswerQueue(asio::io_context& io, std::size_t most, std::function<void()> on_overflow)
    : io_(io), changed_(io), most_(most), on_overflow_(std::move(on_overflow)) {}

void AnswerQueue::push(std::int64_t prompt, const Event& event) {
  const std::lock_guard lock(mutex_);
  if (overflowed_) return;
  if (items_.size() >= most_ && event.kind == Event::Kind::token) {
    overflowed_ = true;
    asio::post(io_, [self = shared_from_this()] { self->on_overflow_(); });
    throw std::length_error("the client does not read its answer");
  }
  items_.push_back({prompt, event});
  if (is_told_) return;
  is_told_ = true;
  asio::post(io_, [self = shared_from_this()] { self->changed_.cancel(); });
}

Task<std::vector<AnswerQueue::Item>> AnswerQueue::take() {
  std::vector<Item> taken;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      taken.swap(items_);
      is_told_ = false;
    }
    if (!taken.empty() || std::exchange(woken_, false)) co_return taken;
    // push() and wake() cancel this timer on this thread, so none of them can slip in before the
    // wait has begun.
    changed_.expires_at(asio::steady_timer::time_point::max());
    error_code ignored;
    co_await changed_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

void AnswerQueue::wake() {
  woken_ = true;
  changed_.cancel();
}

}  // namespace tessera::server
