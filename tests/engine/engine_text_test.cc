// Requests with words: what becomes of a prompt's text and of the answer's.
#include <gtest/gtest.h>

#include <string>

#include "support/files.h"
#include "support/tiny_tokenizer.h"
#include "tessera/engine.h"

namespace tessera::test {
namespace {

constexpr std::int64_t kTextContext = 96;

TEST(EngineText, TextComesInWholeCharactersAndStops) {
  Context ctx({.threads = 1});
  const auto model = load_model(ctx, data_path("goldens") / "neox-serial-untied");
  const Tokenizer tokenizer =
      Tokenizer::from_json(tiny_tokenizer_json(TinyVocabulary::bytes), "tiny tokenizer");
  KvCache cache = model->make_cache(ctx, CachePolicy::full(), kTextContext);
  Request request;
  request.prompt = "ONCE UPON";  // ids below 96, the size of the vocabulary
  request.options = {.max_tokens = 30, .ignore_eos = true};
  const GenerateResult expected =
      generate(ctx, *model, cache, &tokenizer, tokenizer.encode(request.prompt), request.options);
  Engine engine(ctx, *model, &tokenizer, {.context = kTextContext});
  EXPECT_EQ(engine.submit(request).wait()[0].text, expected.text);
}

// Words of a user are no control tokens, unless the caller says that the prompt is its own.
TEST(EngineText, ASpecialTokenInAPromptIsTextUnlessAskedFor) {
  Context ctx({.threads = 1});
  const auto model = load_model(ctx, data_path("goldens") / "neox-serial-untied");
  const Tokenizer tokenizer =
      Tokenizer::from_json(tiny_tokenizer_json(TinyVocabulary::printable), "tiny tokenizer");
  Engine engine(ctx, *model, &tokenizer, {.context = kTextContext});
  Request request;
  request.prompt = "hi<|endoftext|>";
  request.options = {.max_tokens = 1};
  EXPECT_EQ(engine.submit(request).wait()[0].prompt_tokens, 15);
  request.parse_special = true;
  EXPECT_EQ(engine.submit(request).wait()[0].prompt_tokens, 3);
}

// What was held back, because it could have become a stop string, is part of the answer.
TEST(EngineText, AnAnswerThatTakesTheWholePoolIsGivenInFull) {
  Context ctx({.threads = 1});
  const auto model = load_model(ctx, data_path("goldens") / "neox-serial-untied");
  const Tokenizer tokenizer =
      Tokenizer::from_json(tiny_tokenizer_json(TinyVocabulary::printable), "tiny tokenizer");
  Engine engine(ctx, *model, &tokenizer, {.context = kTextContext, .pages = 3, .page_size = 8});
  Request request;
  request.prompt = "ONCE UPON";
  request.options = {.max_tokens = -1, .ignore_eos = true};
  const GenerateResult whole = engine.submit(request).wait()[0];
  ASSERT_EQ(whole.reason, StopReason::context_full);
  EXPECT_EQ(whole.ids.size(), 24u - 9 + 1);  // the last one need not be stored
  ASSERT_FALSE(whole.text.empty());
  request.options.stop = {whole.text.substr(whole.text.size() - 1) + "never comes"};
  EXPECT_EQ(engine.submit(request).wait()[0].text, whole.text);
}

}  // namespace
}  // namespace tessera::test
