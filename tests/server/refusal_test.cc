// What a refusal tells: the place inside a field, the field to blame, and the code that clients
// know.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "server/api_error.h"
#include "server/generation_request.h"
#include "server/served_test.h"

namespace tessera::server {
namespace {

using Json = nlohmann::json;

class RefusalTest : public ServedTest {
 protected:
  ApiError refused(const Json& body, bool chat = false) const {
    try {
      read_generation(body.dump(), chat, served_);
    } catch (const ApiError& error) {
      return error;
    }
    return {200, "accepted"};
  }
  // The sentence up to what is accepted instead.
  std::string blamed(const char* field, const Json& value) const {
    const bool chat = std::string(field) == "messages";
    Json body = Json::object();
    if (!chat) body["prompt"] = "a";
    body[field] = value;
    const ApiError error = refused(body, chat);
    EXPECT_EQ(error.status, 400) << error.what();
    EXPECT_EQ(error.param, field) << error.what();
    const std::string text = error.what();
    return text.substr(0, text.find(';'));
  }
};

Json turn(const Json& content) { return {{"role", "user"}, {"content", content}}; }

TEST_F(RefusalTest, NamesWhatIsWrongInsideAField) {
  const Json image = {{"type", "image_url"}, {"image_url", {{"url", "data:"}}}};
  const Json text = {{"type", "text"}, {"text", "a"}};
  EXPECT_EQ(blamed("messages", Json::array({turn("a"), turn(Json::array({text, image}))})),
            R"(messages[1].content[1].type is "image_url")");
  EXPECT_EQ(blamed("messages", Json::array({turn(Json::array({{{"type", "text"}}}))})),
            R"(messages[0].content[0] has no "text")");
  EXPECT_EQ(blamed("messages", Json::array({turn(nullptr)})), "messages[0].content is null");
  EXPECT_EQ(blamed("messages", Json::array({turn("a"), {{"role", "tool"}, {"content", "a"}}})),
            R"(messages[1].role is "tool")");
  EXPECT_EQ(blamed("messages", Json::array({{{"role", "user"}}})),
            R"(messages[0] has no "content")");
  EXPECT_EQ(blamed("messages", Json::array({"hello"})), R"(messages[0] is "hello")");
  EXPECT_EQ(blamed("messages", Json::array()), "messages is an array of 0");
  EXPECT_EQ(blamed("logit_bias", {{"5", 200}}), R"(logit_bias["5"] is 200)");
  EXPECT_EQ(blamed("stop", {"a", 5}), "stop[1] is 5");
  EXPECT_EQ(blamed("response_format", {{"type", "json_object"}}),
            R"(response_format.type is "json_object")");
  EXPECT_EQ(blamed("response_format", {{"type", "text"}, {"schema", 1}}),
            R"(response_format has "schema", which is not supported)");
  // Several kinds of lists are accepted here, and which was meant is not known.
  EXPECT_EQ(blamed("prompt", {"a", 5}), "prompt is an array of 2");
}

// Keys are a client's words: they must not write lines or control a terminal.
TEST_F(RefusalTest, KeysAreQuoted) {
  const std::string text = blamed("logit_bias", {{"\x1b[31m\n", 200}});
  EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
}

TEST_F(RefusalTest, AConversationThatIsTooLongHasTheCodeOfTheApi) {
  std::string words;
  for (int i = 0; i < 600; ++i) words += " cat";
  const ApiError text = refused({{"prompt", words}});
  EXPECT_EQ(text.status, 400);
  EXPECT_EQ(text.param, "prompt");
  EXPECT_EQ(text.code, "context_length_exceeded");
  EXPECT_NE(std::string(text.what()).find("512"), std::string::npos) << text.what();
  const ApiError chat = refused({{"messages", Json::array({turn(words)})}}, true);
  EXPECT_EQ(chat.param, "messages");
  EXPECT_EQ(chat.code, "context_length_exceeded");
  const ApiError second = refused({{"prompt", Json::array({"a", words})}});
  EXPECT_EQ(second.code, "context_length_exceeded") << "each prompt is looked at";
  EXPECT_EQ(refused({{"prompt", words}, {"attention_sinks", 4}, {"window", 60}}).status, 200);
}

}  // namespace
}  // namespace tessera::server
