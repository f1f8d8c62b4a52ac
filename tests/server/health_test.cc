// What a server says of itself before it has a model: it listens at once, and /health tells how far
// the loading is, so that a load balancer can wait for it.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>

#include "server/served_test.h"
#include "server/server.h"

namespace tessera::server {
namespace {

using Json = nlohmann::json;

struct HttpAnswer {
  int status = 0;
  std::string head, body;
};

// One request on a connection of its own, read to its end.
class PlainClient {
 public:
  explicit PlainClient(const std::string& address)
      : port_(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)))) {}

  HttpAnswer get(const std::string& path) const {
    return exchange("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  }
  HttpAnswer post(const std::string& path, const std::string& body) const {
    return exchange("POST " + path +
                    " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                    "Content-Type: application/json\r\nContent-Length: " +
                    std::to_string(body.size()) + "\r\n\r\n" + body);
  }

 private:
  HttpAnswer exchange(const std::string& request) const {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port_);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::string text;
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0 &&
        ::send(socket, request.data(), request.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(request.size())) {
      char part[4096];
      for (ssize_t n = 0; (n = ::recv(socket, part, sizeof(part), 0)) > 0;) {
        text.append(part, static_cast<std::size_t>(n));
      }
    }
    ::close(socket);
    const std::size_t end = text.find("\r\n\r\n");
    if (!text.starts_with("HTTP/1.1 ") || end == std::string::npos) return {};
    return {std::stoi(text.substr(9, 3)), text.substr(0, end), text.substr(end + 4)};
  }

  std::uint16_t port_;
};

class HealthTest : public ServedTest {
 protected:
  // Of /health: the status, and what the body says.
  Json health() const {
    const HttpAnswer answer = client_.get("/health");
    Json said = Json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
    if (said.is_object()) said["http"] = answer.status;
    return said;
  }

  Server server_{{.port = 0, .log = LogStyle::off}};
  PlainClient client_{server_.address()};
};

TEST_F(HealthTest, WhileLoadingItTellsTheProgress) {
  EXPECT_EQ(health(), Json({{"http", 503}, {"status", "loading"}, {"progress", 0.0}}));
  double before = 0;
  for (const double share : {0.25, 0.5, 1.0}) {
    server_.set_progress(share);
    const Json said = health();
    EXPECT_EQ(said, Json({{"http", 503}, {"status", "loading"}, {"progress", share}}));
    EXPECT_GT(said["progress"], before);
    before = share;
  }
}

TEST_F(HealthTest, WhileLoadingThePageIsThereAndRequestsAreToldToComeBack) {
  EXPECT_EQ(client_.get("/").status, 200);
  EXPECT_EQ(client_.get("/openapi.json").status, 200);
  EXPECT_EQ(client_.get("/metrics").status, 200);
  EXPECT_EQ(client_.get("/nothing").status, 404);
  for (const HttpAnswer& answer :
       {client_.get("/v1/models"), client_.post("/v1/completions", R"({"prompt": "a"})"),
        client_.post("/tokenize", R"({"content": "a"})")}) {
    EXPECT_EQ(answer.status, 503) << answer.body;
    EXPECT_NE(answer.head.find("Retry-After: "), std::string::npos) << answer.head;
    EXPECT_EQ(Json::parse(answer.body)["error"]["type"], "server_error");
  }
}

TEST_F(HealthTest, IsReadyOnceThereIsAModel) {
  server_.set_progress(0.5);
  server_.open(served_);  // /health and /tokenize need no engine
  EXPECT_EQ(health(), Json({{"http", 200}, {"status", "ok"}}));
  EXPECT_EQ(client_.post("/tokenize", R"({"content": "the cat"})").status, 200);
  server_.stop();
  EXPECT_EQ(client_.get("/health").status, 0) << "nobody listens any more";
}

}  // namespace
}  // namespace tessera::server
