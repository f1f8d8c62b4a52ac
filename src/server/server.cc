#include "server/server.h"

#include <fmt/format.h>

#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "server/connection.h"
#include "server/server_state.h"
#include "server/task.h"

namespace tessera::server {
namespace {

using Clock = std::chrono::steady_clock;

// How long connections may take to end by themselves once they were asked to.
constexpr auto kEndTime = std::chrono::seconds(3);
constexpr auto kLook = std::chrono::milliseconds(100);  // for signals, while something else waits

tcp::endpoint resolve(asio::io_context& io, const ServerOptions& options) {
  error_code error;
  const auto address = asio::ip::make_address(options.host, error);
  if (!error) return {address, options.port};
  tcp::resolver resolver(io);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
  if (error || found.empty()) {
    fail(ErrorCode::invalid_argument,
         "--host {} is neither an address nor a name that can be found: {}", options.host,
         error.message());
  }
  return found.begin()->endpoint();
}

tcp::acceptor listen(asio::io_context& io, const ServerOptions& options) {
  const tcp::endpoint endpoint = resolve(io, options);
  try {
    return tcp::acceptor(io, endpoint, true);
  } catch (const boost::system::system_error& error) {
    fail(ErrorCode::invalid_argument,
         "{}:{} cannot be listened on: {}; choose another --port, or 0 for a free one",
         options.host, options.port, error.code().message());
  }
}

// A connection too many gets one sentence, if its system takes it at once.
void turn_away(tcp::socket socket) {
  ApiError error(503, "the server has as many connections as it may have");
  const std::string body = dump(error_json(error));
  const std::string text = fmt::format(
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
      "Retry-After: 1\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{}",
      body.size(), body);
  error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(text), ignored);
  socket.shutdown(tcp::socket::shutdown_both, ignored);
}

}  // namespace

class Server::Impl {
 public:
  explicit Impl(ServerOptions options)
      : state_(std::move(options)),
        acceptor_(listen(state_.io, state_.options)),
        signal_set_(state_.io, SIGINT, SIGTERM, SIGHUP),
        work_(state_.io.get_executor()) {
    wait_for_next_signal();
    asio::co_spawn(state_.io, accept_all(), asio::detached);
    thread_ = std::thread([this] { state_.io.run(); });
  }
  ~Impl() { stop(); }

  std::string address() const {
    const tcp::endpoint endpoint = acceptor_.local_endpoint();
    const std::string host = endpoint.address().to_string();
    return fmt::format(fmt::runtime(endpoint.address().is_v6() ? "http://[{}]:{}" : "http://{}:{}"),
                       host, endpoint.port());
  }
  bool is_local() const { return acceptor_.local_endpoint().address().is_loopback(); }

  void set_progress(double share) {
    asio::post(state_.io, [this, share] { state_.progress = share; });
  }
  void open(const ServedModel& served) {
    asio::post(state_.io, [this, &served] { state_.served = &served; });
  }

  int signals() const { return signals_; }
  void wait_for_signal() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return signals_ > 0; });
  }

  void drain(Engine& engine, std::chrono::milliseconds time) {
    const int before = signals_;
    asio::post(state_.io, [this] { begin_draining(); });
    const Clock::time_point end = Clock::now() + time;
    while (Clock::now() < end && signals_ == before) {
      if (engine.drain_until(std::min(end, Clock::now() + kLook))) break;
    }
  }

  void stop() {
    if (!thread_.joinable()) return;
    asio::post(state_.io, [this] {
      begin_draining();
      state_.ending = true;
      for (Connection* connection : state_.connections) connection->wake();
      asio::co_spawn(state_.io, end_connections(), asio::detached);
    });
    thread_.join();
    state_.workers.join();
  }

 private:
  void wait_for_next_signal() {
    signal_set_.async_wait([this](error_code error, int) {
      if (error) return;
      {
        const std::lock_guard lock(mutex_);
        ++signals_;
      }
      changed_.notify_all();
      wait_for_next_signal();
    });
  }

  Task<void> accept_all() {
    while (!state_.draining) {
      error_code error;
      tcp::socket socket =
          co_await acceptor_.async_accept(asio::redirect_error(asio::use_awaitable, error));
      if (state_.draining) break;
      if (error) {  // out of file descriptors, for example: others may end soon
        asio::steady_timer pause(state_.io, kLook);
        co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
        continue;
      }
      if (std::ssize(state_.connections) >= state_.options.limits.connections) {
        ++state_.metrics.refused_connections;
        turn_away(std::move(socket));
        continue;
      }
      asio::co_spawn(state_.io,
                     Connection::run(std::make_shared<Connection>(std::move(socket), state_)),
                     asio::detached);
    }
  }

  void begin_draining() {
    if (state_.draining) return;
    state_.draining = true;
    error_code ignored;
    acceptor_.close(ignored);
    for (Connection* connection : state_.connections) connection->end_if_idle();
  }

  // Waits for the connections, closes those that are left, and lets the thread end.
  Task<void> end_connections() {
    const Clock::time_point end = Clock::now() + kEndTime;
    asio::steady_timer pause(state_.io);
    error_code ignored;
    while (!state_.connections.empty()) {
      if (Clock::now() > end) {
        for (Connection* connection : state_.connections) connection->close();
      }
      pause.expires_after(std::chrono::milliseconds(10));
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
    signal_set_.cancel(ignored);
    work_.reset();
  }

  ServerState state_;
  tcp::acceptor acceptor_;
  asio::signal_set signal_set_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::atomic<int> signals_ = 0;
  std::thread thread_;
};

Server::Server(ServerOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Server::~Server() = default;
std::string Server::address() const { return impl_->address(); }
bool Server::is_local() const { return impl_->is_local(); }
void Server::set_progress(double share) { impl_->set_progress(share); }
void Server::open(const ServedModel& served) { impl_->open(served); }
int Server::signals() const { return impl_->signals(); }
void Server::wait_for_signal() const { impl_->wait_for_signal(); }
void Server::drain(Engine& engine, std::chrono::milliseconds time) { impl_->drain(engine, time); }
void Server::stop() { impl_->stop(); }

}  // namespace tessera::server
