// What a body of a request may say, and what is refused: without a model and without a socket.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "server/api_error.h"
#include "server/generation_request.h"
#include "server/openapi.h"
#include "server/request_fields.h"
#include "server/schema.h"
#include "server/served_test.h"

namespace tessera::server {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kTwo63 = std::uint64_t{1} << 63;
constexpr std::uint64_t kLargest = std::numeric_limits<std::uint64_t>::max();

class RequestTest : public ServedTest {
 protected:
  GenerationRequest read(const Json& body, bool chat = false) const {
    return read_generation(body.dump(), chat, served_);
  }
  // The refusal's sentence and status; nothing where the request is accepted.
  std::string refusal(const Json& body, bool chat = false) const {
    try {
      read(body, chat);
    } catch (const ApiError& error) {
      return std::to_string(error.status) + " " + error.param + ": " + error.what();
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }
};

TEST_F(RequestTest, FieldsReachTheEngine) {
  const GenerationRequest request = read({{"prompt", "hello"},
                                          {"max_tokens", 7},
                                          {"temperature", 0.5},
                                          {"top_p", 0.9},
                                          {"top_k", 4},
                                          {"min_p", 0.1},
                                          {"seed", 11},
                                          {"n", 3},
                                          {"stop", {"a", "b"}},
                                          {"logprobs", 2},
                                          {"logit_bias", {{"5", -100}}},
                                          {"ignore_eos", true},
                                          {"cache_prompt", false},
                                          {"attention_sinks", 4},
                                          {"window", 60},
                                          {"stream", true},
                                          {"stream_options", {{"include_usage", true}}}});
  ASSERT_EQ(request.requests.size(), 1u);
  const Request& first = request.requests[0];
  EXPECT_EQ(first.prompt_ids, prompts_.encode("hello"));
  EXPECT_EQ(first.options.max_tokens, 7);
  EXPECT_EQ(first.options.sampling.temperature, 0.5);
  EXPECT_EQ(first.options.sampling.top_p, 0.9);
  EXPECT_EQ(first.options.sampling.top_k, 4);
  EXPECT_EQ(first.options.sampling.min_p, 0.1);
  EXPECT_EQ(first.options.sampling.seed, 11u);
  EXPECT_EQ(first.n, 3);
  EXPECT_EQ(first.options.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(first.options.top_logprobs, 2);
  EXPECT_EQ(first.options.sampling.logit_bias.size(), 1u);
  EXPECT_TRUE(first.options.ignore_eos);
  EXPECT_FALSE(first.use_prefix_cache);
  EXPECT_EQ(first.policy.kind, CachePolicy::Kind::sinks);
  EXPECT_EQ(first.policy.n_sink, 4);
  EXPECT_EQ(first.policy.window, 60);
  EXPECT_TRUE(request.stream && request.include_usage && request.logprobs);
}

// 2.0 is a whole number in JSON. A seed may be any of 64 bits.
TEST_F(RequestTest, WholeNumbersMayBeWrittenAsFloats) {
  const Request first = read({{"prompt", {1.0, 2.0}},
                              {"max_tokens", 7.0},
                              {"n", 3.0},
                              {"top_k", 4.0},
                              {"logprobs", 2.0},
                              {"attention_sinks", 4.0},
                              {"window", 60.0},
                              {"seed", -0x1p63}})
                            .requests[0];
  EXPECT_EQ(first.prompt_ids, (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(first.options.max_tokens, 7);
  EXPECT_EQ(first.n, 3);
  EXPECT_EQ(first.options.sampling.top_k, 4);
  EXPECT_EQ(first.options.top_logprobs, 2);
  EXPECT_EQ(first.policy.n_sink, 4);
  EXPECT_EQ(first.policy.window, 60);
  EXPECT_EQ(first.options.sampling.seed, kTwo63);
  const auto seed = [&](const Json& given) {
    return read({{"prompt", "a"}, {"seed", given}}).requests[0].options.sampling.seed;
  };
  EXPECT_EQ(seed(kTwo63 - 1), kTwo63 - 1);
  EXPECT_EQ(seed(0x1.fffffffffffffp62), kTwo63 - 1024) << "the largest float below";
  EXPECT_EQ(seed(std::numeric_limits<std::int64_t>::min()), kTwo63);
  EXPECT_EQ(seed(-1), kLargest);
}

TEST_F(RequestTest, PromptsAreTextsOrIdsOneOrMany) {
  EXPECT_EQ(read({{"prompt", {1, 2, 3}}}).requests[0].prompt_ids,
            (std::vector<std::int32_t>{1, 2, 3}));
  const GenerationRequest several = read({{"prompt", {"a", "b"}}, {"n", 2}, {"echo", true}});
  EXPECT_EQ(several.choices(), 4);
  EXPECT_EQ(several.echoes, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(read({{"prompt", {{1, 2}, {3}}}}).requests[1].prompt_ids,
            (std::vector<std::int32_t>{3}));
}

TEST_F(RequestTest, NullCountsAsMissing) {
  EXPECT_EQ(refusal({{"prompt", "a"}, {"n", nullptr}, {"anything", nullptr}}), "");
  EXPECT_NE(refusal({{"prompt", nullptr}}), "");
}

TEST_F(RequestTest, WhatIsRefusedNamesItsField) {
  const std::pair<const char*, Json> bad[] = {{"n", 0},
                                              {"n", 1'000'000'000},
                                              {"n", -1},
                                              {"n", "1"},
                                              {"n", 1.5},
                                              {"max_tokens", 0},
                                              {"max_tokens", -1},
                                              {"temperature", -1},
                                              {"temperature", "hot"},
                                              {"top_p", 0},
                                              {"top_p", 1.01},
                                              {"top_k", -1},
                                              {"min_p", 2},
                                              {"stop", ""},
                                              {"stop", Json::array({""})},
                                              {"stop", 5},
                                              {"stream", 1},
                                              {"logprobs", 21},
                                              {"logprobs", true},
                                              {"prompt", ""},
                                              {"prompt", Json::array()},
                                              {"prompt", {-1}},
                                              {"seed", 1e300},
                                              {"seed", kTwo63},
                                              {"seed", kLargest},
                                              {"seed", 0x1p63},
                                              {"seed", -0x1.0000000000001p63},
                                              {"seed", 0.5},
                                              {"n", 129.0},
                                              {"n", kTwo63 + 1},
                                              {"max_tokens", kLargest},
                                              {"max_tokens", 1'000'001.0},
                                              {"top_k", 0x1p31},
                                              {"top_k", -0x1p-1074},
                                              {"logprobs", 20.5},
                                              {"prompt", Json::array({0x1p31})},
                                              {"prompt", Json::array({kTwo63})},
                                              {"temperature", -0x1p-1074},
                                              {"window", -0.0},
                                              {"window", 0x1p64},
                                              {"logit_bias", {{"x", 1}}},
                                              {"window", 0},
                                              {"window", -3},
                                              {"attention_sinks", 1.5},
                                              {"tools", Json::array()},
                                              {"nonsense", 1},
                                              {"repetition_penalty", 1e-300},
                                              {"logit_bias", {{"5", 101}}},
                                              {"logit_bias", {{"99999999", 1}}},
                                              {"response_format", {{"type", "json_object"}}}};
  for (const auto& [field, value] : bad) {
    Json body = {{"prompt", "a"}};
    body[field] = value;
    const std::string text = refusal(body);
    EXPECT_TRUE(text.starts_with(std::string("400 ") + field + ": ")) << field << value << text;
  }
}

// Nothing contradicts here: both are in the API, and only we lack it.
TEST_F(RequestTest, EchoWithLogProbabilitiesIsNotSupported) {
  const std::string text = refusal({{"prompt", "a"}, {"echo", true}, {"logprobs", 0}});
  EXPECT_TRUE(text.starts_with("400 echo: echo with logprobs is not supported")) << text;
  EXPECT_EQ(refusal({{"prompt", "a"}, {"echo", false}, {"logprobs", 0}}), "");
}

TEST_F(RequestTest, CapsOfStopsAndBiases) {
  const auto stops = [](std::size_t count) { return Json(std::vector<std::string>(count, "x")); };
  const auto biases = [](int count) {
    Json json = Json::object();
    for (int id = 0; id < count; ++id) json[std::to_string(id)] = 1;
    return json;
  };
  std::string accents;  // two bytes each
  for (int i = 0; i < 256; ++i) accents += "\xc3\xa9";
  config_.vocab = 2000;  // so that all ids of the biases are the model's

  for (const Json& good : {stops(16), Json(std::string(256, 'x')), Json(accents)}) {
    EXPECT_EQ(refusal({{"prompt", "a"}, {"stop", good}}), "") << good;
  }
  for (const Json& bad : {stops(17), Json(std::string(257, 'x')), Json(accents + "x"),
                          Json::array({"a", std::string(257, 'x')})}) {
    EXPECT_TRUE(refusal({{"prompt", "a"}, {"stop", bad}}).starts_with("400 stop: ")) << bad;
  }
  EXPECT_EQ(refusal({{"prompt", "a"}, {"logit_bias", biases(1024)}}), "");
  const std::string text = refusal({{"prompt", "a"}, {"logit_bias", biases(1025)}});
  EXPECT_TRUE(text.starts_with("400 logit_bias: ")) << text;
  EXPECT_NE(text.find("1024"), std::string::npos) << text;
}

// Each field is right by itself: 422, where 400 is for a field that is wrong whatever the others
// say.
TEST_F(RequestTest, FieldsThatContradictEachOther) {
  const std::pair<const char*, Json> bad[] = {
      {"stream_options", {{"prompt", "a"}, {"stream_options", {{"include_usage", true}}}}},
      {"n", {{"prompt", Json::array({"a", "b"})}, {"n", 100}}},
      // 128 million tokens in one piece
      {"max_tokens",
       {{"prompt", "a"},
        {"n", 128},
        {"max_tokens", 1'000'000},
        {"attention_sinks", 4},
        {"window", 60}}}};
  for (const auto& [field, body] : bad) {
    const std::string text = refusal(body);
    EXPECT_TRUE(text.starts_with(std::string("422 ") + field + ": ")) << body << text;
  }
  const Json turns = Json::array({{{"role", "user"}, {"content", "hello"}}});
  EXPECT_TRUE(
      refusal({{"messages", turns}, {"top_logprobs", 2}}, true).starts_with("422 top_logprobs: "));
  EXPECT_TRUE(refusal({{"messages", turns}, {"max_tokens", 2}, {"max_completion_tokens", 2}}, true)
                  .starts_with("422 max_tokens: "));
}

TEST_F(RequestTest, WhatTheModelCannotDo) {
  EXPECT_TRUE(
      refusal({{"prompt", "a"}, {"attention_sinks", 512}}).starts_with("422 attention_sinks: "));
  served_.chat = nullptr;
  const Json turns = Json::array({{{"role", "user"}, {"content", "hello"}}});
  EXPECT_TRUE(refusal({{"messages", turns}}, true).starts_with("422 messages: "));
  EXPECT_TRUE(refusal({{"messages", Json::array()}}, true).starts_with("400 messages: "))
      << "what is wrong by itself is told first";
}

TEST_F(RequestTest, AnotherModelIsNotFound) {
  EXPECT_TRUE(refusal({{"prompt", "a"}, {"model", "gpt-4"}}).starts_with("404 model: "));
  EXPECT_EQ(refusal({{"prompt", "a"}, {"model", "tiny"}}), "");
}

TEST_F(RequestTest, Chats) {
  const Json turn = {{"role", "user"}, {"content", "hello"}};
  const Json parts = {{"role", "user"},
                      {"content", Json::array({{{"type", "text"}, {"text", "hel"}},
                                               {{"type", "text"}, {"text", "lo"}}})}};
  const auto ids = [&](const Json& messages) {
    return read({{"messages", messages}}, true).requests[0].prompt_ids;
  };
  EXPECT_EQ(ids(Json::array({turn})), ids(Json::array({parts})));
  EXPECT_EQ(ids(Json::array({{{"role", "system"}, {"content", "x"}}, turn})),
            ids(Json::array({{{"role", "developer"}, {"content", "x"}}, turn})));
  for (const Json& bad :
       {Json::array(), Json("x"), Json::array({{{"role", "robot"}, {"content", "x"}}}),
        Json::array({{{"role", "user"}}}),
        Json::array({{{"role", "user"}, {"content", "x"}, {"tool_calls", Json::array()}}}),
        Json::array({{{"role", "user"},
                      {"content", Json::array({{{"type", "image_url"}, {"image_url", "x"}}})}}})}) {
    EXPECT_TRUE(refusal({{"messages", bad}}, true).starts_with("400 messages: ")) << bad;
  }
}

TEST_F(RequestTest, BodiesThatAreNoObject) {
  for (const char* body : {"", "[]", "{", "5", "{\"prompt\": \"\xff\"}", "{\"n\":1,\"n\":2}"}) {
    EXPECT_ANY_THROW(read_generation(body, false, served_)) << body;
  }
}

// The document promises what the reader does: each field of the table is in it.
TEST(OpenApi, DescribesEveryField) {
  const Json& schemas = openapi_document(false)["components"]["schemas"];
  for (const RequestField& field : request_fields(Body::completion)) {
    EXPECT_TRUE(schemas["CompletionRequest"]["properties"].contains(field.name)) << field.name;
  }
}

TEST(OpenApi, PromisesThe422OfRequestsForText) {
  const Json& paths = openapi_document(false)["paths"];
  for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
    EXPECT_TRUE(paths[path]["post"]["responses"].contains("422")) << path;
  }
  EXPECT_FALSE(paths["/tokenize"]["post"]["responses"].contains("422"));
}

TEST(OpenApi, OperationsWantTheKeyOfAServerThatHasOne) {
  EXPECT_EQ(openapi_document(false).dump().find("security"), std::string::npos);
  const Json& document = openapi_document(true);
  EXPECT_TRUE(document["components"]["securitySchemes"].contains("key"));
  std::string open;
  for (const auto& [path, operations] : document["paths"].items()) {
    for (const Json& operation : operations) {
      const bool is_open = !operation.contains("security");
      EXPECT_NE(is_open, operation["responses"].contains("401")) << path;
      if (is_open) open += path + " ";
    }
  }
  EXPECT_EQ(open, "/ /health ");
}

// Every reference leads somewhere.
TEST(OpenApi, HasWhatItRefersTo) {
  const std::string text = openapi_document(true).dump();
  const Json& schemas = openapi_document(true)["components"]["schemas"];
  constexpr std::string_view kBegin = "#/components/schemas/";
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(kBegin, at)) != std::string::npos; ++count) {
    at += kBegin.size();
    const std::string name = text.substr(at, text.find('"', at) - at);
    EXPECT_TRUE(schemas.contains(name)) << name;
  }
  EXPECT_GT(count, 50u);
}

TEST(Schema, Matches) {
  const Json number = {{"type", "number"}, {"exclusiveMinimum", 0}, {"maximum", 1}};
  EXPECT_TRUE(matches(1, number));
  EXPECT_FALSE(matches(0, number));
  EXPECT_FALSE(matches(1.5, number));
  EXPECT_FALSE(matches("1", number));
  EXPECT_TRUE(matches(2.0, {{"type", "integer"}}));
  EXPECT_FALSE(matches(2.5, {{"type", "integer"}}));
  EXPECT_TRUE(matches("\xc3\xa9", {{"type", "string"}, {"maxLength", 1}})) << "one character";
  const Json whole = {{"minimum", -1}, {"maximum", std::numeric_limits<std::int64_t>::max()}};
  for (const Json& fits : {Json(kTwo63 - 1), Json(-1), Json(-1.0), Json(0.5), Json(0u)}) {
    EXPECT_TRUE(matches(fits, whole)) << fits;
  }
  for (const Json& large : {Json(kTwo63), Json(kLargest), Json(0x1p63), Json(1e300)}) {
    EXPECT_FALSE(matches(large, whole)) << large;
  }
  for (const Json& small : {Json(-2), Json(-1.5), Json(-0x1p63), Json(-1e300)}) {
    EXPECT_FALSE(matches(small, whole)) << small;
  }
  EXPECT_TRUE(matches(kLargest, {{"maximum", kLargest}}));
  EXPECT_TRUE(matches(0x1p63, {{"maximum", kLargest}}));
  EXPECT_FALSE(matches(0x1p64, {{"maximum", kLargest}}));
  EXPECT_FALSE(matches(kTwo63, {{"maximum", 0x1.fffffffffffffp62}}));
  const Json object = {{"type", "object"},
                       {"properties", {{"a", number}}},
                       {"required", {"a"}},
                       {"additionalProperties", false}};
  EXPECT_TRUE(matches({{"a", 1}}, object));
  EXPECT_FALSE(matches({{"a", 2}}, object));
  EXPECT_FALSE(matches({{"a", 1}, {"b", 1}}, object));
  EXPECT_FALSE(matches(Json::object(), object));
}

}  // namespace
}  // namespace tessera::server
