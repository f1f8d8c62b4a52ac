// Heads that leave open where a request ends, for whom it is, or how its body is packed.
#include "server/request_head.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace tessera::server {
namespace {

HttpRequest parsed(const std::string& head) {
  beast::flat_buffer buffer;
  buffer.commit(asio::buffer_copy(buffer.prepare(head.size()), asio::buffer(head)));
  RequestParser parser;
  error_code error;
  parse_last(parser, buffer, error);
  EXPECT_FALSE(error) << head << error.message();
  return parser.release();
}

// Behind the head is the end of a body in chunks, for heads that say so.
int status_of(const std::string& lines, const std::string& version = "1.1") {
  const std::string head = "POST / HTTP/" + version + "\r\n" + lines + "\r\n";
  const auto unclear = unclear_request(parsed(head + "0\r\n\r\n"));
  return unclear ? unclear->status : 200;
}

// What one server takes for a body is the next request to another.
TEST(UnclearRequests, OnlyChunkedBodiesHaveACoding) {
  for (const char* coding :
       {"gzip", "gzip, chunked", "identity", "x", "chunked;a=b", "\"chunked\"", ""}) {
    EXPECT_EQ(status_of("Host: a\r\nTransfer-Encoding: " + std::string(coding) + "\r\n"), 501)
        << coding;
  }
  for (const char* coding : {"chunked", "Chunked"}) {
    EXPECT_EQ(status_of("Host: a\r\nTransfer-Encoding: " + std::string(coding) + "\r\n"), 200)
        << coding;
  }
  EXPECT_EQ(status_of("Transfer-Encoding: chunked\r\n", "1.0"), 400);
}

TEST(UnclearRequests, HaveOneHost) {
  EXPECT_EQ(status_of("Host: a\r\n"), 200);
  EXPECT_EQ(status_of("Host:\r\n"), 200);
  EXPECT_EQ(status_of(""), 400);
  EXPECT_EQ(status_of("Host: a\r\nHost: a\r\n"), 400);
  EXPECT_EQ(status_of("", "1.0"), 200) << "HTTP/1.0 knows no Host";
  EXPECT_EQ(status_of("Host: a\r\nHost: b\r\n", "1.0"), 400);
}

TEST(Heads, BodiesAreNotPacked) {
  const auto status = [](const std::string& line) {
    const HttpRequest request = parsed(
        "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n" + line + "\r\n");
    try {
      check_head(request, find_route(http::verb::post, "/tokenize"), ApiKey(), Stage::ready);
    } catch (const ApiError& error) {
      EXPECT_NE(std::string(error.what()).find("Content-Encoding"), std::string::npos);
      return error.status;
    }
    return 200;
  };
  EXPECT_EQ(status("Content-Encoding: gzip\r\n"), 415);
  EXPECT_EQ(status("Content-Encoding: identity\r\n"), 200);
  EXPECT_EQ(status(""), 200);
}

TEST(Heads, TargetsMayBeWholeAddresses) {
  const std::pair<const char*, const char*> paths[] = {
      {"/health", "/health"},
      {"/health?a=/b#c", "/health"},
      {"http://a/health", "/health"},
      {"HTTPS://a.example:8080/v1/models?x", "/v1/models"},
      {"http://a", "/"},
      {"http://a?x=/y", "/"},
      {"http://", "/"},
      {"ftp://a/health", "ftp://a/health"},
      {"//a/health", "//a/health"},
      {"*", "*"},
      {"", ""}};
  for (const auto& [target, path] : paths) EXPECT_EQ(path_of(target), path) << target;
}

TEST(Heads, TheDateIsOfHttp) {
  const std::string date = http_date();
  ASSERT_EQ(date.size(), std::string("Thu, 01 Jan 1970 00:00:00 GMT").size()) << date;
  EXPECT_TRUE(date.ends_with(" GMT")) << date;
  EXPECT_EQ(date[3], ',') << date;
}

}  // namespace
}  // namespace tessera::server
