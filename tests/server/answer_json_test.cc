// Answers as a client reads them: where each token of a completion stands in its text.
#include "server/answer_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/characters.h"
#include "server/generation_request.h"
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

}  // namespace
}  // namespace tessera::server
