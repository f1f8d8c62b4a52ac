#include "server/connection.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <utility>

#include "server/answer_queue.h"
#include "server/request_head.h"

namespace tessera::server {
namespace {

constexpr auto kLingerTime = std::chrono::seconds(2);
constexpr std::size_t kMostLingerBytes = std::size_t{16} << 20;
constexpr std::size_t kFirstReadBytes = 4096;

// Drops empty lines, which some clients send behind a body (RFC 9112, 2.2). False: what is left, at
// most the half of such a line, begins no request.
bool begins_request(beast::flat_buffer& buffer) {
  const auto text = [&] {
    return std::string_view(static_cast<const char*>(buffer.data().data()), buffer.size());
  };
  while (text().starts_with("\r\n")) buffer.consume(2);
  return !text().empty() && text() != "\r";
}

// Runs a function on the thread that reads requests.
template <typename Function>
Task<std::invoke_result_t<Function>> in_worker(ServerState& state, Function function) {
  co_return co_await asio::co_spawn(
      state.workers.get_executor(),
      [](Function work) -> Task<std::invoke_result_t<Function>> {
        co_return work();
      }(std::move(function)),
      asio::use_awaitable);
}

}  // namespace

Connection::Connection(tcp::socket socket, ServerState& state)
    : socket_(std::move(socket)), state_(state), deadline_(socket_) {
  error_code error;
  const tcp::endpoint peer = socket_.remote_endpoint(error);
  client_ = error ? "unknown" : peer.address().to_string();
  socket_.set_option(tcp::no_delay(true), error);  // a token is a small packet
  state_.connections.insert(this);
  state_.metrics.connections = static_cast<std::int64_t>(state_.connections.size());
}

Connection::~Connection() {
  state_.connections.erase(this);
  state_.metrics.connections = static_cast<std::int64_t>(state_.connections.size());
}

void Connection::close() {
  error_code ignored;
  socket_.close(ignored);
}

void Connection::end_if_idle() {
  error_code ignored;
  if (is_idle_) socket_.cancel(ignored);
}

void Connection::wake() {
  if (queue_) queue_->wake();
}

Task<void> Connection::run(std::shared_ptr<Connection> connection) {
  try {
    bool goes_on = true;
    while (goes_on) {
      goes_on = co_await connection->serve_one();
      connection->is_first_ = false;
    }
    co_await connection->linger();
  } catch (const std::exception& error) {
    // Not of a request: those are answered. The connection is closed, the server goes on.
    fmt::print(stderr, "a connection ended: {}\n", error.what());
  }
}

// ---- reading -----------------------------------------------------------------------------------

// A client may take its time between two requests, but not within one.
Task<bool> Connection::wait_for_request() {
  if (begins_request(buffer_)) co_return true;
  const ServerLimits& limits = state_.options.limits;
  deadline_.set(is_first_ ? limits.request : limits.idle);
  do {
    if (at_end_ || state_.draining) co_return false;
    is_idle_ = true;
    error_code error;
    const std::size_t count = co_await socket_.async_read_some(
        buffer_.prepare(kFirstReadBytes), asio::redirect_error(asio::use_awaitable, error));
    is_idle_ = false;
    buffer_.commit(count);
    if (error) co_return false;
  } while (!begins_request(buffer_));
  co_return true;
}

Task<bool> Connection::serve_one() {
  const bool has_request = co_await wait_for_request();
  if (!has_request) co_return false;
  const ServerLimits& limits = state_.options.limits;
  RequestParser parser;
  set_limits(parser, limits);
  deadline_.set(limits.request);
  Head head{.began = Clock::now()};
  error_code error;
  co_await read_head(parser, error);
  if (error) co_return co_await refuse_head(error);

  const HttpRequest& request = parser.get();
  const std::string path(path_of(view(request.target())));
  head.version = request.version();
  head.keep_alive = request.keep_alive();
  head.is_head = request.method() == http::verb::head;
  head.origin = std::string(view(request[http::field::origin]));
  head.log = {
      .client = client_, .method = std::string(view(request.method_string())), .path = path};

  const Route* route = nullptr;
  std::optional<Reply> refusal;
  if (const std::optional<ApiError> unclear = unclear_request(request)) {
    head.keep_alive = false;
    co_return co_await send(error_reply(*unclear), head);
  }
  try {
    if (request.method() == http::verb::options && !state_.options.cors.empty()) {
      head.asked_headers = std::string(view(request[http::field::access_control_request_headers]));
      refusal = Reply{.status = 204};  // add_headers() says what is allowed
    } else {
      route = &find_route(request.method(), path);
      head.route = route->path;
      check_head(request, *route, state_.key, stage());
    }
  } catch (const ApiError& refused) {
    refusal = error_reply(refused);
    if (refused.status == 405) refusal->headers.emplace_back("Allow", allowed_methods(path));
  }
  if (refusal) {
    // What is left of the request would have to be read, only to be dropped.
    if (!parser.is_done()) head.keep_alive = false;
    co_return co_await send(std::move(*refusal), head);
  }
  const bool is_read = co_await read_body(parser, head);
  if (!is_read) co_return false;
  deadline_.clear();
  if (state_.options.log_prompts) head.log.body = request.body();
  co_return co_await answer(*route, request, path, head);
}

Task<void> Connection::read_head(RequestParser& parser, error_code& error) {
  if (at_end_) {
    parse_last(parser, buffer_, error);
    co_return;
  }
  co_await http::async_read_header(socket_, buffer_, parser,
                                   asio::redirect_error(asio::use_awaitable, error));
}

Task<bool> Connection::refuse_head(error_code error) {
  Head head{.began = Clock::now(), .log = {.client = client_, .method = "-", .path = "-"}};
  if (deadline_.passed()) {
    co_return co_await send(error_reply({408, "the request took too long to arrive"}), head);
  }
  // The client has closed or reset its end; there is nobody to answer.
  if (!is_http_error(error) || error == http::error::end_of_stream) co_return false;
  co_return co_await send(error_reply(parse_error(error)), head);
}

Stage Connection::stage() const {
  if (state_.draining) return Stage::draining;
  return state_.served == nullptr ? Stage::loading : Stage::ready;
}

// Sends what is wrong, if anything is.
Task<bool> Connection::read_body(RequestParser& parser, Head& head) {
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  error_code error;
  if (!parser.is_done() && !parser.get()[http::field::expect].empty()) {
    co_await asio::async_write(socket_, asio::buffer(kContinue.data(), kContinue.size()),
                               asio::redirect_error(asio::use_awaitable, error));
  }
  if (!error && !parser.is_done()) {
    co_await http::async_read(socket_, buffer_, parser,
                              asio::redirect_error(asio::use_awaitable, error));
  }
  if (!error) co_return true;
  head.keep_alive = false;
  if (deadline_.passed()) {
    co_await send(error_reply({408, "the request took too long to arrive"}), head);
  } else if (error == http::error::partial_message) {
    co_await send(error_reply({400, "the body is shorter than its length says"}), head);
  } else if (is_http_error(error)) {
    co_await send(error_reply(parse_error(error)), head);
  }
  co_return false;
}

// ---- answering ---------------------------------------------------------------------------------

Task<bool> Connection::answer(const Route& route, const HttpRequest& request, std::string_view path,
                              Head& head) {
  if (route.work == Route::Work::completion || route.work == Route::Work::chat) {
    co_return co_await generate(request, route.work == Route::Work::chat, head);
  }
  const Call call{request, path, state_};
  Reply reply;
  try {
    if (route.work == Route::Work::worker) {
      reply = co_await in_worker(state_, [&] { return route.answer(call); });
    } else {
      reply = route.answer(call);
    }
  } catch (...) {
    reply = error_reply(caught_error());
  }
  co_return co_await send(std::move(reply), head);
}

template <typename Fields>
void Connection::add_headers(Fields& fields, const Head& head) const {
  fields.set(http::field::date, http_date());
  fields.set("X-Content-Type-Options", "nosniff");
  const std::string& cors = state_.options.cors;
  if (cors.empty() || head.origin.empty() || (cors != "*" && cors != head.origin)) return;
  fields.set(http::field::access_control_allow_origin, cors);
  fields.set(http::field::access_control_allow_methods, "GET, POST");
  fields.set(http::field::access_control_allow_headers,
             std::string(allowed_headers(head.asked_headers)));
  fields.set(http::field::access_control_max_age, "600");
  fields.set(http::field::vary, "Origin, Access-Control-Request-Headers");
}

void Connection::count(const Head& head, int status) {
  const double seconds = std::chrono::duration<double>(Clock::now() - head.began).count();
  state_.metrics.count_request(head.route, status, seconds);
  // Somebody asks for these every few seconds.
  const bool is_poll = status == 200 && (head.route == "/health" || head.route == "/metrics");
  if (is_poll) return;
  LogEntry entry = head.log;
  entry.status = status;
  entry.seconds = seconds;
  write_log(entry, state_.options.log);
}

Task<bool> Connection::send(Reply reply, Head& head) {
  const int status = reply.status;
  http::response<http::string_body> response(http::int_to_status(static_cast<unsigned>(status)),
                                             head.version == 10 ? 10 : 11);
  if (status != 204) response.set(http::field::content_type, reply.type);
  for (const auto& [name, value] : reply.headers) response.set(name, value);
  add_headers(response, head);
  const bool keep_alive = head.keep_alive && !state_.draining;
  response.keep_alive(keep_alive);
  response.body() = std::move(reply.body);
  response.prepare_payload();
  error_code error;
  http::response_serializer<http::string_body> serializer(response);
  serializer.split(head.is_head);
  const auto is_sent = [&] {
    return head.is_head ? serializer.is_header_done() : serializer.is_done();
  };
  while (!error && !is_sent()) {
    deadline_.set(state_.options.limits.write);  // a large answer may take longer, piece by piece
    co_await http::async_write_some(socket_, serializer,
                                    asio::redirect_error(asio::use_awaitable, error));
  }
  deadline_.clear();
  count(head, status);
  co_return keep_alive && !error;
}

Task<bool> Connection::send_stream_head(const Head& head, bool chunked) {
  http::response<http::empty_body> response(http::status::ok, head.version == 10 ? 10 : 11);
  response.set(http::field::content_type, "text/event-stream");
  response.set(http::field::cache_control, "no-store");
  response.set("X-Accel-Buffering", "no");  // nginx would hold tokens back
  add_headers(response, head);
  response.chunked(chunked);
  response.keep_alive(head.keep_alive && chunked);
  http::response_serializer<http::empty_body> serializer(response);
  deadline_.set(state_.options.limits.write);
  error_code error;
  co_await http::async_write_header(socket_, serializer,
                                    asio::redirect_error(asio::use_awaitable, error));
  deadline_.clear();
  co_return !error;
}

Task<bool> Connection::send_piece(std::string piece, bool chunked) {
  deadline_.set(state_.options.limits.write);
  error_code error;
  if (chunked) {
    co_await asio::async_write(socket_, http::make_chunk(asio::buffer(piece)),
                               asio::redirect_error(asio::use_awaitable, error));
  } else {
    co_await asio::async_write(socket_, asio::buffer(piece),
                               asio::redirect_error(asio::use_awaitable, error));
  }
  deadline_.clear();
  co_return !error;
}

Task<bool> Connection::send_stream_end(bool chunked) {
  if (!chunked) co_return false;  // the end of the connection is the end of the answer
  deadline_.set(state_.options.limits.write);
  error_code error;
  co_await asio::async_write(socket_, http::make_chunk_last(),
                             asio::redirect_error(asio::use_awaitable, error));
  deadline_.clear();
  co_return !error;
}

// A socket that is closed with bytes unread sends a reset, which may overtake the answer. So the
// client closes first, if it does so soon.
Task<void> Connection::linger() {
  error_code error;
  socket_.shutdown(tcp::socket::shutdown_send, error);
  if (at_end_) co_return;
  deadline_.set(kLingerTime);
  std::size_t total = buffer_.size();
  while (!error && total < kMostLingerBytes) {
    buffer_.clear();
    total += co_await socket_.async_read_some(buffer_.prepare(std::size_t{64} << 10),
                                              asio::redirect_error(asio::use_awaitable, error));
    if (deadline_.passed()) break;
  }
  deadline_.clear();
}

}  // namespace tessera::server
