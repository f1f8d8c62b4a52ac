// Generation with a toy model whose logits are all known: what is fed to the model, what comes out,
// and when it ends.
#include "tessera/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/refusal.h"
#include "support/tiny_tokenizer.h"
#include "support/toy_model.h"

namespace tessera::test {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::int64_t kVocab = 257;  // size of TinyVocabulary::bytes

std::int32_t id_of(char c) { return 1 + static_cast<unsigned char>(c); }

Ids ids_of(const std::string& text) {
  Ids ids;
  for (const char c : text) ids.push_back(id_of(c));
  return ids;
}

struct Generation : testing::Test {
  Context ctx{{.threads = 1}};
  ToyModel model{kVocab};
  Tokenizer tokenizer =
      Tokenizer::from_json(tiny_tokenizer_json(TinyVocabulary::bytes), "tiny tokenizer");

  // Makes the model write this text after '>'. Each byte of the text occurs once.
  void teach(const std::string& text) {
    char last = '>';
    for (const char c : text) model.always(id_of(std::exchange(last, c)), id_of(c));
  }

  GenerateResult run(const Ids& prompt, const GenerateOptions& options,
                     std::vector<std::string>* pieces = nullptr) {
    KvCache cache = model.cache(ctx, CachePolicy::full(), 1000);
    return generate(ctx, model, cache, &tokenizer, prompt, options,
                    [&](const GeneratedToken& token) {
                      if (pieces != nullptr) pieces->push_back(token.text);
                    });
  }
};

TEST_F(Generation, ReadsThePromptInStepsAndThenATokenAtATime) {
  KvCache cache = model.cache(ctx, CachePolicy::full(), 1000, 8);
  const Ids prompt = ids_of("a prompt of 22 letters");
  const GenerateResult result =
      generate(ctx, model, cache, nullptr, prompt, {.max_tokens = 3, .sampling = {.greedy = true}});
  EXPECT_EQ(model.step_sizes, (std::vector<std::int64_t>{8, 8, 6, 1, 1}));
  EXPECT_EQ(model.logits_rows, (std::vector<std::int64_t>{0, 0, 1, 1, 1}));
  // Each token is the most likely one after those that were fed.
  Ids all = prompt;
  for (const std::int32_t id : result.ids) {
    const std::vector<float> row = model.logits(all[all.size() - 2], all.back());
    EXPECT_EQ(id, std::max_element(row.begin(), row.end()) - row.begin());
    all.push_back(id);
  }
  // The last token is returned, but not fed.
  EXPECT_EQ(model.stream, Ids(all.begin(), all.end() - 1));
  EXPECT_EQ(cache.seen(), 24);
  EXPECT_EQ(result.reason, StopReason::max_tokens);
  EXPECT_EQ(result.prompt_tokens, 22);
  EXPECT_EQ(result.text, "");
  EXPECT_TRUE(result.sampled.empty());
  EXPECT_LE(result.prefill_seconds, result.first_seconds);
  EXPECT_GE(result.decode_seconds, 0.0);
}

TEST_F(Generation, GoesOnWithTheStreamOfACache) {
  const GenerateOptions six{.max_tokens = 6, .sampling = {.greedy = true}};
  const GenerateOptions three{.max_tokens = 3, .sampling = {.greedy = true}};
  const Ids whole = run(ids_of("xy"), six).ids;
  KvCache cache = model.cache(ctx, CachePolicy::full(), 1000);
  Ids parts = generate(ctx, model, cache, nullptr, ids_of("xy"), three).ids;
  const Ids last = {parts.back()};
  const Ids more = generate(ctx, model, cache, nullptr, last, three).ids;
  parts.insert(parts.end(), more.begin(), more.end());
  EXPECT_EQ(parts, whole);
}

TEST_F(Generation, StreamsTheTextThatItReturns) {
  teach("hello");
  std::vector<std::string> pieces;
  const GenerateResult result =
      run(ids_of(">"), {.max_tokens = 3, .sampling = {.greedy = true}}, &pieces);
  EXPECT_EQ(result.text, "hel");
  EXPECT_EQ(pieces, (std::vector<std::string>{"h", "e", "l"}));
}

TEST_F(Generation, AnExceptionOfTheCallbackEndsTheCallAndTheStreamCanGoOn) {
  struct Unplugged {};
  const GenerateOptions six{.max_tokens = 6, .sampling = {.greedy = true}};
  const Ids whole = run(ids_of("xy"), six).ids;
  KvCache cache = model.cache(ctx, CachePolicy::full(), 1000);
  Ids delivered;
  const auto on_token = [&](const GeneratedToken& token) {
    delivered.push_back(token.sampled.token.id);
    if (delivered.size() == 3) throw Unplugged();
  };
  EXPECT_THROW(generate(ctx, model, cache, nullptr, ids_of("xy"), six, on_token), Unplugged);
  EXPECT_EQ(delivered, Ids(whole.begin(), whole.begin() + 3));
  EXPECT_EQ(cache.seen(), 4);  // the prompt and every token but the one being delivered
  const Ids last{delivered.back()};
  const Ids rest =
      generate(ctx, model, cache, nullptr, last, {.max_tokens = 3, .sampling = {.greedy = true}})
          .ids;
  EXPECT_EQ(rest, Ids(whole.begin() + 3, whole.end()));
}

TEST_F(Generation, NeverStreamsHalfACharacter) {
  teach("\xC3\xA9!");  // é
  std::vector<std::string> pieces;
  EXPECT_EQ(run(ids_of(">"), {.max_tokens = 3, .sampling = {.greedy = true}}, &pieces).text,
            "\xC3\xA9!");
  EXPECT_EQ(pieces, (std::vector<std::string>{"", "\xC3\xA9", "!"}));
  // A character that is cut off in the middle appears as decode() writes it.
  EXPECT_EQ(run(ids_of(">"), {.max_tokens = 1, .sampling = {.greedy = true}}).text, "\xEF\xBF\xBD");
}

TEST_F(Generation, EndsAtAnEndToken) {
  teach("ab");
  model.always(id_of('b'), 0);
  model.set_eos({5, 0});
  const GenerateResult result = run(ids_of(">"), {.sampling = {.greedy = true}});
  EXPECT_EQ(result.reason, StopReason::eos);
  EXPECT_EQ(result.ids, (Ids{id_of('a'), id_of('b'), 0}));
  EXPECT_EQ(result.text, "ab");
  const GenerateResult on =
      run(ids_of(">"), {.max_tokens = 5, .ignore_eos = true, .sampling = {.greedy = true}});
  EXPECT_EQ(on.reason, StopReason::max_tokens);
  EXPECT_EQ(on.ids.size(), 5u);
  const GenerateResult early =
      run(ids_of(">"), {.stop_ids = {id_of('b')}, .sampling = {.greedy = true}});
  EXPECT_EQ(early.reason, StopReason::eos);
  EXPECT_EQ(early.text, "a");
}

TEST_F(Generation, StopStringsSpanTokensAndNeverShow) {
  teach("abc<end>");
  std::vector<std::string> pieces;
  const GenerateOptions options{.stop = {"<end>", "xyz"}, .sampling = {.greedy = true}};
  const GenerateResult result = run(ids_of(">"), options, &pieces);
  EXPECT_EQ(result.reason, StopReason::stop_string);
  EXPECT_EQ(result.text, "abc");
  EXPECT_EQ(result.ids, ids_of("abc<end>"));
  EXPECT_EQ(pieces, (std::vector<std::string>{"a", "b", "c", "", "", "", "", ""}));
}

TEST_F(Generation, WhatWasHeldBackComesWhenTheTextEnds) {
  teach("ab<en");
  std::vector<std::string> pieces;
  const GenerateOptions options{.max_tokens = 5, .stop = {"<end>"}, .sampling = {.greedy = true}};
  EXPECT_EQ(run(ids_of(">"), options, &pieces).text, "ab<en");
  EXPECT_EQ(pieces.back(), "<en");
}

TEST_F(Generation, EndsAfterTheCurrentTokenWhereCancelled) {
  std::atomic<bool> cancel = false;
  KvCache cache = model.cache(ctx, CachePolicy::full(), 1000);
  int tokens = 0;
  const GenerateResult result =
      generate(ctx, model, cache, nullptr, ids_of("x"), {.max_tokens = -1, .cancel = &cancel},
               [&](const GeneratedToken&) { cancel = ++tokens == 5; });
  EXPECT_EQ(result.reason, StopReason::cancelled);
  EXPECT_LE(result.ids.size(), 6u);
  cancel = true;
  cache.clear();
  EXPECT_TRUE(generate(ctx, model, cache, nullptr, ids_of("x"), {.cancel = &cancel}).ids.empty());
}

TEST_F(Generation, TextThatWasHeldBackComesWithTheTokenThatCancellingEnds) {
  teach("ab<end>");
  std::atomic<bool> cancel = false;
  KvCache cache = model.cache(ctx, CachePolicy::full(), 1000);
  std::string streamed;
  const GenerateOptions options{.stop = {"<end>"}, .sampling = {.greedy = true}, .cancel = &cancel};
  const GenerateResult result = generate(ctx, model, cache, &tokenizer, ids_of(">"), options,
                                         [&](const GeneratedToken& token) {
                                           streamed += token.text;
                                           if (token.sampled.token.id == id_of('<')) cancel = true;
                                         });
  EXPECT_EQ(result.reason, StopReason::cancelled);
  EXPECT_EQ(result.text, "ab<e");
  EXPECT_EQ(streamed, result.text);
}

TEST_F(Generation, AFailedPassReachesTheCallerAndTheStreamCanGoOn) {
  const GenerateOptions six{.max_tokens = 6, .sampling = {.greedy = true}};
  const GenerateOptions three{.max_tokens = 3, .sampling = {.greedy = true}};
  const Ids whole = run(ids_of("xy"), six).ids;
  struct Unreliable : ToyModel {
    using ToyModel::ToyModel;
    void forward(Context& context, const ForwardArgs& args) const override {
      if (fails) throw Error(ErrorCode::invalid_argument, "the model has failed");
      ToyModel::forward(context, args);
    }
    bool fails = false;
  } unreliable(kVocab);
  KvCache cache = model.cache(ctx, CachePolicy::full(), 1000);
  Ids delivered;
  const auto on_token = [&](const GeneratedToken& token) {
    delivered.push_back(token.sampled.token.id);
    unreliable.fails = delivered.size() == 3;
  };
  EXPECT_TRUE(
      refuses([&] { generate(ctx, unreliable, cache, nullptr, ids_of("xy"), six, on_token); },
              "the model has failed"));
  EXPECT_EQ(cache.seen(), 4);  // the token whose pass failed is not stored
  const Ids last{delivered.back()};
  EXPECT_EQ(generate(ctx, model, cache, nullptr, last, three).ids,
            Ids(whole.begin() + 3, whole.end()));
}

TEST_F(Generation, AFullCacheEndsTheTextAndLosesNothing) {
  KvCache cache = model.cache(ctx, CachePolicy::full(), 10);
  const GenerateResult result = generate(ctx, model, cache, nullptr, ids_of("xyz"),
                                         {.max_tokens = -1, .sampling = {.greedy = true}});
  EXPECT_EQ(result.reason, StopReason::context_full);
  EXPECT_EQ(result.ids.size(), 8u);  // seven fill the cache, and the last of them yields one more
}

TEST_F(Generation, ARollingCacheNeverFills) {
  for (const CachePolicy& policy : {CachePolicy::last(8), CachePolicy::sinks(2, 6)}) {
    KvCache cache = model.cache(ctx, policy, 0);
    const GenerateResult result =
        generate(ctx, model, cache, nullptr, ids_of("a prompt longer than the window is"),
                 {.max_tokens = 100, .sampling = {.greedy = true}});
    EXPECT_EQ(result.ids.size(), 100u);
  }
}

TEST_F(Generation, LogprobsComeWhereAskedFor) {
  const GenerateResult result =
      run(ids_of("xy"), {.max_tokens = 2, .sampling = {.greedy = true}, .top_logprobs = 3});
  ASSERT_EQ(result.sampled.size(), 2u);
  EXPECT_EQ(result.sampled[0].token.id, result.ids[0]);
  EXPECT_EQ(result.sampled[0].top.size(), 3u);
  EXPECT_NEAR(result.sampled[0].token.logprob, model.logprob(id_of('x'), id_of('y'), result.ids[0]),
              1e-5);
}

TEST_F(Generation, TheSeedAloneDecidesTheTokens) {
  const auto draw = [&](std::uint64_t seed) {
    return run(ids_of("xy"), {.max_tokens = 40, .sampling = {.seed = seed}}).ids;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

TEST_F(Generation, IdsBeyondTheTokenizerHaveNoText) {
  ToyModel padded(300);
  padded.always(id_of('>'), 299);
  padded.always(299, id_of('a'));
  KvCache cache = padded.cache(ctx, CachePolicy::full(), 100);
  const GenerateResult result = generate(ctx, padded, cache, &tokenizer, ids_of(">"),
                                         {.max_tokens = 2, .sampling = {.greedy = true}});
  EXPECT_EQ(result.ids, (Ids{299, id_of('a')}));
  EXPECT_EQ(result.text, "a");
}

TEST_F(Generation, RefusesBadCallsBeforeAnyWork) {
  const auto refused = [&](const Ids& prompt, const GenerateOptions& options,
                           const std::string& text) {
    KvCache cache = model.cache(ctx, CachePolicy::full(), 10);
    EXPECT_TRUE(refuses([&] { generate(ctx, model, cache, nullptr, prompt, options); }, text));
    EXPECT_EQ(cache.seen(), 0);
  };
  refused({}, {}, "the prompt is empty; it needs at least one token");
  refused({3, 257}, {},
          "token 1 of the prompt is 257; the model's vocabulary has the tokens 0 to 256");
  refused({-1}, {}, "token 0 of the prompt is -1; the model's vocabulary has the tokens 0 to 256");
  refused({1}, {.max_tokens = 0}, "max_tokens is 0; it must be positive, or -1 for no limit");
  refused({1}, {.top_logprobs = 258},
          "top_logprobs is 258; it must be -1 (none) or from 0 to the vocabulary's 257");
  refused({1}, {.stop = {"x"}},
          "stop strings need a tokenizer, and this call has none: leave them out");
  refused({1}, {.sampling = {.top_p = 2}}, "top_p is 2; it must be above 0 and at most 1");
  EXPECT_THROW(run(Ids(1001, 1), {}), Error);
  EXPECT_THROW(run({1}, {.stop = {""}}), Error);
  EXPECT_THROW(run({1}, {.stop = {"\xC3"}}), Error);
  EXPECT_TRUE(model.step_sizes.empty());
}

}  // namespace
}  // namespace tessera::test
