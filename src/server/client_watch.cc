#include "server/client_watch.h"

#include <sys/socket.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <string_view>
#include <utility>

#include "server/limits.h"

namespace tessera::server {
namespace {

constexpr std::size_t kReadBytes = 4096;
constexpr auto kProbeEvery = std::chrono::milliseconds(250);
constexpr std::string_view kInterimAnswer = "HTTP/1.1 102 Processing\r\n\r\n";

}  // namespace

ClientWatch::ClientWatch(tcp::socket& socket, beast::flat_buffer& buffer, bool at_end,
                         bool may_probe, std::function<void()> on_gone)
    : shared_(std::make_shared<Shared>(socket, buffer, at_end, may_probe, std::move(on_gone))) {
  asio::co_spawn(socket.get_executor(), watch(shared_), asio::detached);
}

Task<void> ClientWatch::watch(std::shared_ptr<Shared> shared) {
  error_code error;
  // stop() may have come before this coroutine began.
  while (!error && !shared->at_end && !shared->is_stopping &&
         shared->buffer.size() < kMostPipelinedBytes) {
    const std::size_t count = co_await shared->socket.async_read_some(
        shared->buffer.prepare(kReadBytes), asio::redirect_error(asio::use_awaitable, error));
    shared->buffer.commit(count);
  }
  if (error == asio::error::eof) shared->at_end = true;
  if (!shared->is_stopping && shared->at_end) {
    co_await probe(*shared);
  } else if (!shared->is_stopping && error) {
    shared->is_gone = true;
  }
  if (shared->is_gone && !shared->is_stopping) shared->on_gone();
  shared->is_running = false;
  shared->ended.cancel();
}

// The client has closed its direction. It may still read, or it may be gone: only bytes that are
// sent to it show which, since the system of a client that is gone answers them with a reset. An
// interim answer is such bytes. A client of HTTP/1.0 would not understand it and counts as gone.
Task<void> ClientWatch::probe(Shared& shared) {
  shared.is_gone = !shared.knows_interim;  // once it is being answered, the answer itself shows it
  while (!shared.is_gone && shared.may_probe && !shared.is_stopping) {
    shared.timer.expires_after(kProbeEvery);
    error_code ignored;
    co_await shared.timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    if (!shared.may_probe || shared.is_stopping) co_return;
    shared.is_gone = ::send(shared.socket.native_handle(), kInterimAnswer.data(),
                            kInterimAnswer.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0;
  }
}

Task<void> ClientWatch::stop() {
  shared_->is_stopping = true;
  while (shared_->is_running) {
    error_code ignored;
    shared_->socket.cancel(ignored);
    shared_->timer.cancel();
    shared_->ended.expires_at(asio::steady_timer::time_point::max());
    co_await shared_->ended.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

}  // namespace tessera::server
