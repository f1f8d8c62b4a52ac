// Reads any bytes as what a client sends over a connection: heads of requests, and bodies with a
// length or in chunks, one request after the other, with small limits. The first byte says in
// pieces of how many bytes they come. The same requests must be heard as in one piece.
#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/beast/http/read.hpp>
#include <string>

#include "fuzz.h"
#include "server/request_head.h"

namespace {

using namespace tessera::server;  // NOLINT(google-build-using-namespace)

constexpr ServerLimits kSmall = {.header_bytes = 1024, .body_bytes = 2048};

// A connection whose bytes lie in memory.
class Sent {
 public:
  Sent(std::string_view bytes, std::size_t piece) : left_(bytes), piece_(piece) {}

  template <typename Buffers>
  std::size_t read_some(const Buffers& to, error_code& error) {
    if (left_.empty()) {
      error = asio::error::eof;
      return 0;
    }
    error = {};
    const std::size_t most = std::min(piece_, left_.size());
    const std::size_t count = asio::buffer_copy(to, asio::buffer(left_.data(), most));
    left_.remove_prefix(count);
    return count;
  }
  template <typename Buffers>
  std::size_t read_some(const Buffers& to) {  // Beast asks for one that throws, and does not use it
    error_code error;
    return read_some(to, error);
  }

 private:
  std::string_view left_;
  std::size_t piece_;
};

// A refusal is one sentence, as an Error is.
void check_sentence(const ApiError& error) {
  (void)tessera::fuzz::takes(
      [&] { throw tessera::Error(tessera::ErrorCode::invalid_argument, error.what()); });
}

// How it ends. Of several things that are wrong, Beast may find another one first in pieces.
std::string end_of(error_code error) {
  if (!is_http_error(error) || error == http::error::end_of_stream) return "end";
  check_sentence(parse_error(error));
  return "refused";
}

// As a connection does; false: its client is refused.
bool accepts(const HttpRequest& request) {
  static const ApiKey key("secret");
  const std::string path(path_of(view(request.target())));
  (void)unescaped(path);
  (void)allowed_headers(view(request[http::field::access_control_request_headers]));
  try {
    check_head(request, find_route(request.method(), path), key, Stage::ready);
    return true;
  } catch (const ApiError& error) {
    check_sentence(error);
    return false;
  }
}

std::string read_requests(std::string_view bytes, std::size_t piece) {
  Sent sent(bytes, piece);
  beast::flat_buffer buffer;
  std::string heard;
  while (true) {
    RequestParser parser;
    set_limits(parser, kSmall);
    error_code error;
    http::read_header(sent, buffer, parser, error);
    if (error) return heard + end_of(error);
    if (const auto unclear = unclear_request(parser.get())) {
      check_sentence(*unclear);
      return heard + "unclear";
    }
    const bool accepted = accepts(parser.get());
    heard += view(parser.get().method_string());
    heard += view(parser.get().target());
    heard += accepted ? " accepted " : " refused ";
    if (!accepted && !parser.is_done()) return heard;
    if (!parser.is_done()) http::read(sent, buffer, parser, error);
    if (error) return heard + end_of(error);
    if (parser.get().body().size() > kSmall.body_bytes) std::abort();
    heard += parser.get().body() + "\n";
    if (!parser.get().keep_alive()) return heard;
  }
}

// The same, of a client that has closed its direction.
void read_last(std::string_view bytes) {
  beast::flat_buffer buffer;
  buffer.commit(asio::buffer_copy(buffer.prepare(bytes.size()), asio::buffer(bytes)));
  while (buffer.size() > 0) {
    RequestParser parser;
    set_limits(parser, kSmall);
    error_code error;
    parse_last(parser, buffer, error);
    if (error) {
      (void)end_of(error);
      return;
    }
    if (parser.get().body().size() > kSmall.body_bytes || !parser.is_done()) std::abort();
    (void)accepts(parser.get());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const tessera::fuzz::TimeBound bound(16 * size);
  const std::string_view bytes = tessera::fuzz::text_of(data + 1, size - 1);
  const std::string whole = read_requests(bytes, bytes.size());
  const std::string pieces = read_requests(bytes, 1 + data[0] % 64);
  if (whole != pieces) {
    std::cerr << "In one piece:\n" << whole << "\nin pieces:\n" << pieces << '\n';
    std::abort();
  }
  read_last(bytes);
  return 0;
}
