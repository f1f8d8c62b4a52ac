// Answers as a client reads them: where each token of a completion stands in its text, and that
// they have the members that /openapi.json lists.
#include "server/answer_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/answer_schema.h"
#include "server/characters.h"
#include "server/generation_request.h"
#include "server/schema.h"
#include "server/served_test.h"
#include "server/token_text.h"

namespace tessera::server {
namespace {

using Json = nlohmann::json;
using Offsets = std::vector<std::int64_t>;

class AnswerJsonTest : public ServedTest {
 protected:
  Event token(std::int32_t id) const {
    Event event;
    event.token.sampled.token = {id, -1.0F};
    event.token.text = "text";  // offsets do not come from here: it may be held back
    return event;
  }
  // The offsets of an answer of these tokens in one piece, and in a stream.
  Offsets whole(const Json& body, const std::vector<std::int32_t>& ids) const {
    const GenerationRequest request = read_generation(body.dump(), false, served_);
    AnswerJson json(served_, request);
    for (const std::int32_t id : ids) json.add(0, token(id));
    return json.whole({})["choices"][0]["logprobs"]["text_offset"].get<Offsets>();
  }
  Offsets streamed(const Json& body, const std::vector<std::int32_t>& ids) const {
    const GenerationRequest request = read_generation(body.dump(), false, served_);
    AnswerJson json(served_, request);
    Offsets offsets;
    for (const std::int32_t id : ids) {
      const Json chunk = json.chunk(0, token(id));
      for (const Json& offset : chunk["choices"][0]["logprobs"]["text_offset"]) {
        offsets.push_back(offset.get<std::int64_t>());
      }
    }
    return offsets;
  }

  const Json body_ = {{"prompt", "hello"}, {"logprobs", 0}};
};

TEST_F(AnswerJsonTest, OffsetsCountCharactersWholeAndStreamed) {
  const std::string text = " caf\xc3\xa9 \xe2\x80\x94 \xe7\x8c\xab \xf0\x9f\x98\x80 ends";
  const std::vector<std::int32_t> ids = tokenizer_.encode(text);
  // What the tokens before make up, without the beginning of a character that is not whole yet.
  Offsets expected;
  std::vector<std::int32_t> before;
  for (const std::int32_t id : ids) {
    std::string so_far = tokenizer_.decode(before);
    while (so_far.ends_with("\xef\xbf\xbd")) so_far.resize(so_far.size() - 3);
    expected.push_back(count_characters(so_far));
    before.push_back(id);
  }
  const std::int64_t characters = count_characters(text);
  ASSERT_EQ(characters, 16);
  ASSERT_LT(expected.back(), characters);
  EXPECT_EQ(whole(body_, ids), expected);
  EXPECT_EQ(streamed(body_, ids), expected);
  // The last token stands at the end of the text, which bytes would miss by eight.
  EXPECT_EQ(expected.back() + count_characters(token_text(tokenizer_, ids.back())), characters);
}

TEST_F(AnswerJsonTest, AllPartsOfACharacterAreWhereItBegins) {
  std::vector<std::int32_t> ids = tokenizer_.encode("a");
  const std::size_t begin = ids.size();
  for (const char* part : {"\xc3\xb0", "\xc5\x81", "\xc4\xba", "\xc4\xa2"}) {
    // U+1F600 is the bytes F0 9F 98 80, which the vocabulary spells so
    const auto id = tokenizer_.id_of(part);
    ASSERT_TRUE(id.has_value()) << part;
    ids.push_back(*id);
  }
  for (const std::int32_t id : tokenizer_.encode("b")) ids.push_back(id);
  ASSERT_EQ(begin, 1U);
  ASSERT_EQ(ids.size(), 6U);
  EXPECT_EQ(whole(body_, ids), (Offsets{0, 1, 1, 1, 1, 2}));
  EXPECT_EQ(streamed(body_, ids), (Offsets{0, 1, 1, 1, 1, 2}));
}

TEST_F(AnswerJsonTest, EachChoiceCountsForItself) {
  Json body = body_;
  body["n"] = 2;
  body["prompt"] = {"hello", "you"};
  const GenerationRequest request = read_generation(body.dump(), false, served_);
  AnswerJson json(served_, request);
  const std::vector<std::int32_t> ids = tokenizer_.encode("the cat and the dog");
  ASSERT_GT(ids.size(), 2U);
  std::vector<Offsets> found(4);
  for (const std::int32_t id : ids) {
    for (std::int64_t choice : {0, 3, 1}) {
      const Json chunk = json.chunk(choice, token(id))["choices"][0];
      EXPECT_EQ(chunk["index"], choice);
      const Json& offsets = chunk["logprobs"]["text_offset"];
      ASSERT_EQ(offsets.size(), 1U);
      found[static_cast<std::size_t>(choice)].push_back(offsets[0].get<std::int64_t>());
    }
  }
  EXPECT_EQ(found[0], whole(body_, ids));
  EXPECT_EQ(found[1], found[0]);
  EXPECT_EQ(found[3], found[0]);
  EXPECT_GT(found[0].back(), 0);
}

// The same schema without room for members that it does not list.
Json closed(Json schema) {
  for (Json& part : schema) {
    if (part.is_structured()) part = closed(std::move(part));
  }
  if (schema.is_object() && schema.contains("properties") && schema["properties"].is_object()) {
    schema["additionalProperties"] = false;
  }
  return schema;
}

TEST_F(AnswerJsonTest, AnswersHaveTheMembersThatTheSchemasList) {
  const Json turns = Json::array({{{"role", "user"}, {"content", "hello"}}});
  const Json& schemas = answer_schemas();
  for (const bool chat : {false, true}) {
    const std::string name = chat ? "ChatCompletion" : "Completion";
    const Json whole = closed(schemas[name]), chunk = closed(schemas[name + "Chunk"]);
    for (const bool logprobs : {false, true}) {
      Json body = {{"n", 2}, {"stream", true}, {"stream_options", {{"include_usage", true}}}};
      if (chat) {
        body["messages"] = turns;
      } else {
        body["prompt"] = "hello";
        body["echo"] = !logprobs;
      }
      if (logprobs) body["logprobs"] = chat ? Json(true) : Json(2);
      AnswerJson json(served_, read_generation(body.dump(), chat, served_));
      Event event = token(5);
      event.token.sampled.top = {{5, -1.0F}, {6, -2.0F}};
      Event end;
      end.kind = Event::Kind::finished;
      std::vector<Json> chunks = {json.first_chunk(0), json.chunk(0, event), json.chunk(1, event),
                                  json.chunk(0, end), json.usage_chunk({})};
      for (const Json& one : chunks) {
        EXPECT_TRUE(one.is_null() || matches(one, chunk)) << one;
        EXPECT_FALSE(matches(one, whole)) << one;
      }
      json.add(0, event);
      json.add(0, end);
      json.add(1, end);
      const Json answer = json.whole({});
      EXPECT_TRUE(matches(answer, whole)) << answer;
      EXPECT_FALSE(matches(answer, chunk)) << answer;
      Json changed = answer;
      changed["choices"][0]["index"] = "0";
      EXPECT_FALSE(matches(changed, whole)) << "schemas look into choices";
      changed = answer;
      changed["usage"].erase("total_tokens");
      EXPECT_FALSE(matches(changed, whole)) << "and into the usage";
    }
  }
}

}  // namespace
}  // namespace tessera::server
