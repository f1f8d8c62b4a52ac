// The small parts of the server that need no socket: keys, figures, logged texts, the page.
#include <gtest/gtest.h>

#include <string>

#include "server/api_error.h"
#include "server/api_key.h"
#include "server/http.h"
#include "server/metrics.h"
#include "server/page.h"
#include "server/token_text.h"
#include "support/files.h"

namespace tessera::server {
namespace {

TEST(ApiKeys, OnlyTheWholeKeyIsAccepted) {
  const ApiKey key("secret");
  for (const char* right : {"Bearer secret", "bearer secret", "BEARER secret", "bEaRer   secret"}) {
    EXPECT_TRUE(key.accepts(right)) << right;
  }
  for (const char* wrong :
       {"", "secret", "Bearer", "Bearer ", "Bearer secre", "Bearer secrets", "Bearer secretsecret",
        "Bearersecret", "Bearer\tsecret", "Bearer Secret", "Basic secret", " Bearer secret",
        "Bearer secret ", "Bearer  "}) {
    EXPECT_FALSE(key.accepts(wrong)) << wrong;
  }
  EXPECT_TRUE(ApiKey().accepts("")) << "no key is asked for";
}

TEST(Paths, EscapesAreRead) {
  EXPECT_EQ(unescaped("a%2Fb%20c%c3%A9%25"), "a/b c\xc3\xa9%");
  for (const char* plain : {"", "a", "%", "%2", "%zz", "%2g", "%-1", "a%", "%%", "+"}) {
    EXPECT_EQ(unescaped(plain), plain);
  }
  EXPECT_EQ(unescaped("%%41"), "%A");
}

TEST(MetricsText, CountsOfBucketsAddUp) {
  Histogram histogram;
  for (const double seconds : {0.0001, 0.0005, 0.002, 0.2, 1000.0}) histogram.observe(seconds);
  std::string text;
  histogram.write(text, "x", "help");
  EXPECT_NE(text.find("x_bucket{le=\"0.0005\"} 2\n"), std::string::npos) << text;
  EXPECT_NE(text.find("x_bucket{le=\"0.0025\"} 3\n"), std::string::npos);
  EXPECT_NE(text.find("x_bucket{le=\"60\"} 4\n"), std::string::npos);
  EXPECT_NE(text.find("x_bucket{le=\"+Inf\"} 5\n"), std::string::npos);
  EXPECT_NE(text.find("x_count 5\n"), std::string::npos);
}

TEST(MetricsText, RequestsHaveARouteAndAStatus) {
  Metrics metrics;
  metrics.count_request("/health", 200, 0.001);
  metrics.count_request("/health", 200, 0.001);
  metrics.count_request("/v1/completions", 400, 0.001);
  const std::string text = metrics.text(nullptr, 0);
  EXPECT_NE(text.find("tessera_requests_total{route=\"/health\",status=\"200\"} 2\n"),
            std::string::npos);
  EXPECT_NE(text.find("tessera_requests_total{route=\"/v1/completions\",status=\"400\"} 1\n"),
            std::string::npos);
  EXPECT_EQ(text.find("tessera_kv_pages"), std::string::npos) << "no model yet";
}

TEST(MetricsText, TellsWhatTheEngineCounted) {
  EngineStats stats;
  stats.running = 2;
  stats.waiting = 3;
  stats.pages = 11;
  stats.pages_used = 5;
  stats.pages_peak = 7;
  stats.steps = 13;
  stats.prompt_tokens = 17;
  stats.cached_tokens = 19;
  stats.generated_tokens = 23;
  stats.finished = 29;
  stats.failed = 31;
  stats.cancelled = 37;
  stats.preemptions = 41;
  stats.drafted_tokens = 43;
  stats.accepted_tokens = 47;
  const std::string text = Metrics().text(&stats, 53);
  for (const char* line :
       {"sequences_running 2", "sequences_waiting 3", "kv_pages 11", "kv_pages_used 5",
        "kv_pages_peak 7", "kv_page_bytes 53", "steps_total 13", "prompt_tokens_total 17",
        "cached_tokens_total 19", "generated_tokens_total 23", "answers_finished_total 29",
        "answers_failed_total 31", "answers_cancelled_total 37", "preemptions_total 41",
        "drafted_tokens_total 43", "accepted_tokens_total 47"}) {
    EXPECT_NE(text.find(std::string("\ntessera_") + line + "\n"), std::string::npos) << line;
  }
}

TEST(ApiErrors, StatusesOfErrors) {
  EXPECT_EQ(api_error(ErrorCode::invalid_argument, "x").status, 400);
  EXPECT_EQ(api_error(ErrorCode::busy, "x").status, 429);
  EXPECT_GT(api_error(ErrorCode::busy, "x").retry_after_seconds, 0);
  EXPECT_EQ(api_error(ErrorCode::out_of_memory, "x").status, 503);
  EXPECT_EQ(api_error(ErrorCode::device, "x").status, 500);
  const auto json = error_json(ApiError(404, "no", "model", "model_not_found"));
  EXPECT_EQ(json["error"]["message"], "no");
  EXPECT_EQ(json["error"]["type"], "invalid_request_error");
  EXPECT_EQ(json["error"]["code"], "model_not_found");
}

TEST(Pages, EachAnswerHasItsOwnNonce) {
  const Page first = make_page(), second = make_page();
  EXPECT_NE(first.policy, second.policy);
  EXPECT_EQ(first.html.find("__NONCE__"), std::string::npos);
  const std::size_t at = first.policy.find("'nonce-") + 7;
  const std::string nonce = first.policy.substr(at, first.policy.find('\'', at) - at);
  EXPECT_GE(nonce.size(), 22u);
  EXPECT_NE(first.html.find("<script nonce=\"" + nonce + "\""), std::string::npos);
}

TEST(TokenTexts, TokensKeepTheirSpaces) {
  for (const char* file : {"tiny-gpt2", "tiny-llama2"}) {
    const Tokenizer tokenizer = Tokenizer::from_file(
        test::data_path(std::string("tokenizers/") + file + ".tokenizer.json"));
    const std::string text = "the cat and the dog";
    std::string together;
    for (const std::int32_t id : tokenizer.encode(text)) together += token_text(tokenizer, id);
    EXPECT_TRUE(together == text || together == " " + text) << file << ": " << together;
  }
}

// A client puts a character together from the bytes of its tokens.
TEST(TokenTexts, PartsOfACharacterHaveItsBytes) {
  const std::string face = "\xf0\x9f\x98\x80";
  for (const char* file : {"tiny-gpt2", "tiny-llama2"}) {
    const Tokenizer tokenizer = Tokenizer::from_file(
        test::data_path(std::string("tokenizers/") + file + ".tokenizer.json"));
    const std::string text = "the cat " + face;
    std::string bytes;
    std::size_t parts = 0;
    for (const std::int32_t id : tokenizer.encode(text)) {
      bytes += token_bytes(tokenizer, id);
      parts += token_bytes(tokenizer, id) != token_text(tokenizer, id) ? 1 : 0;
    }
    EXPECT_TRUE(bytes == text || bytes == " " + text) << file << ": " << bytes;
    EXPECT_GE(parts, 2U) << file;
  }
}

}  // namespace
}  // namespace tessera::server
