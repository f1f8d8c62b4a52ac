// A client with a slow line: an answer may take longer than the time for a piece of it, as long as
// the client goes on reading.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "server/served_test.h"
#include "server/server.h"

namespace tessera::server {
namespace {

using namespace std::chrono_literals;

constexpr auto kPieceTime = 600ms;
// Of the client. In the time for a piece it reads two thirds of the answer, with what the systems
// keep. A socket takes the next piece once a third of what the system keeps has been read.
constexpr double kBytesPerSecond = 12e6;
constexpr std::size_t kTokens = 1'000'000;
// More than the two systems keep between the server and the client (net.ipv4.tcp_wmem: 4 MB).
constexpr std::size_t kLeastAnswer = 15'000'000;

// A connection whose system takes little at a time.
int connect_with_small_buffer(const std::string& address) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  const int bytes = 64 * 1024;
  EXPECT_EQ(setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)), 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port =
      htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  return socket;
}

using SlowReaders = ServedTest;

TEST_F(SlowReaders, GetTheWholeAnswerIfTheyGoOnReading) {
  Server server({.port = 0, .limits = {.write = kPieceTime}, .log = LogStyle::off});
  server.open(served_);  // /detokenize needs no engine
  std::int32_t id = 0;   // of a long token
  for (std::int32_t i = 0; i < tokenizer_.vocab_size(); ++i) {
    if (tokenizer_.token(i).size() > tokenizer_.token(id).size()) id = i;
  }
  std::string body = R"({"tokens": [)";
  for (std::size_t i = 0; i < kTokens; ++i) {
    body += std::to_string(id);
    body += i + 1 < kTokens ? ',' : ']';
  }
  body += "}";
  const std::string request =
      "POST /detokenize HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
      "Content-Type: application/json\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body;

  const int socket = connect_with_small_buffer(server.address());
  ASSERT_EQ(::send(socket, request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  std::string answer(1024, ' ');  // its head, and the beginning of its body
  const ssize_t first = ::recv(socket, answer.data(), answer.size(), 0);
  ASSERT_GT(first, 0);
  answer.resize(static_cast<std::size_t>(first));
  const auto began = std::chrono::steady_clock::now();
  std::string part(64 * 1024, ' ');
  for (ssize_t count = 0; (count = ::recv(socket, part.data(), part.size(), 0)) > 0;) {
    answer.append(part, 0, static_cast<std::size_t>(count));
    const std::chrono::duration<double> due(static_cast<double>(answer.size()) / kBytesPerSecond);
    std::this_thread::sleep_until(
        began + std::chrono::duration_cast<std::chrono::steady_clock::duration>(due));
  }
  ::close(socket);
  server.stop();
  const std::size_t length = answer.find("Content-Length: "), end = answer.find("\r\n\r\n");
  ASSERT_NE(length, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  EXPECT_EQ(answer.size() - end - 4, std::stoul(answer.substr(length + 16)));
  EXPECT_GT(answer.size(), kLeastAnswer);
}

}  // namespace
}  // namespace tessera::server
