// What a tokenizer.json may say: every option by its effect, and every refusal by its words.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/checkpoint/json.h"
#include "support/refusal.h"
#include "tessera/tokenizer.h"

namespace tessera::test {
namespace {

using model::Json;
using Texts = std::vector<std::string>;

// A tokenizer of single characters whose words end in "|". Its tokens show where a text was cut.
Json cutter() {
  Json vocab = Json::object();
  const auto add = [&](const std::string& token) {
    const auto id = vocab.size();
    vocab[token] = id;
  };
  const std::string ascii = " abcdefghijklmnopqrstuvwxyzHTN-.,!?0123456789<>\n";
  for (const char c : ascii) {
    add(std::string(1, c));
    add(std::string(1, c) + "|");
  }
  for (const char* c : {"▁", "é", "\u0301", "ﬁ", "Ġ", "\u3000", "½", "«"}) {
    add(c);
    add(std::string(c) + "|");
  }
  const Json model{
      {"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}, {"end_of_word_suffix", "|"}};
  return {{"version", "1.0"}, {"model", model}};
}

Tokenizer from(const Json& json) { return Tokenizer::from_json(json.dump(), "t.json"); }

std::string cut(const Json& json, const std::string& text) {
  const Tokenizer tokenizer = from(json);
  std::string all;
  for (const std::int32_t id : tokenizer.encode(text)) all += tokenizer.token(id);
  return all;
}

std::string normalized(const Json& normalizer, const std::string& text) {
  Json json = cutter();
  json["normalizer"] = normalizer;
  return cut(json, text);
}

std::string pre_tokenized(const Json& pre_tokenizer, const std::string& text) {
  Json json = cutter();
  json["pre_tokenizer"] = pre_tokenizer;
  return cut(json, text);
}

TEST(Normalizer, EveryStepDoesWhatItSays) {
  EXPECT_EQ(normalized(nullptr, "e\u0301"), "e\u0301|");
  EXPECT_EQ(normalized({{"type", "NFC"}}, "e\u0301"), "é|");
  EXPECT_EQ(normalized({{"type", "NFD"}}, "é"), "e\u0301|");
  EXPECT_EQ(normalized({{"type", "NFKC"}}, "ﬁe\u0301"), "fié|");
  EXPECT_EQ(normalized({{"type", "NFKD"}}, "ﬁé"), "fie\u0301|");
  EXPECT_EQ(normalized({{"type", "Lowercase"}}, "HaT"), "hat|");
  EXPECT_EQ(normalized({{"type", "StripAccents"}}, "e\u0301a"), "ea|");
  EXPECT_EQ(normalized({{"type", "Prepend"}, {"prepend", "▁"}}, "a"), "▁a|");
  EXPECT_EQ(normalized({{"type", "Prepend"}, {"prepend", "▁"}}, ""), "");
  EXPECT_EQ(normalized({{"type", "ByteLevel"}}, " a"), "Ġa|");
  const auto strip = [](bool left, bool right) {
    return Json{{"type", "Strip"}, {"strip_left", left}, {"strip_right", right}};
  };
  EXPECT_EQ(normalized(strip(true, true), "\u3000 a b \n"), "a b|");
  EXPECT_EQ(normalized(strip(true, false), "  a "), "a |");
  EXPECT_EQ(normalized(strip(false, true), "  a "), "  a|");
  EXPECT_EQ(normalized(strip(true, true), "  "), "");
  const auto replace = [](const Json& pattern) {
    return Json{{"type", "Replace"}, {"pattern", pattern}, {"content", "-"}};
  };
  EXPECT_EQ(normalized(replace({{"String", ".."}}), "a...b..c"), "a-.b-c|");
  EXPECT_EQ(normalized(replace({{"Regex", "[0-9]+"}}), "a12b3"), "a-b-|");
  EXPECT_EQ(normalized({{"type", "Sequence"},
                        {"normalizers", {{{"type", "NFD"}}, {{"type", "StripAccents"}}}}},
                       "é"),
            "e|");
}

TEST(PreTokenizer, SplitsWithEveryBehavior) {
  const struct {
    const char *behavior, *straight, *inverted;
  } cases[] = {
      {"Removed", "the|final|countdown|", "-|-|-|"},
      {"Isolated", "the|-|final|-|-|countdown|", "the|-|final|-|-|countdown|"},
      {"MergedWithPrevious", "the-|final-|-|countdown|", "the|-final|-|-countdown|"},
      {"MergedWithNext", "the|-final|-|-countdown|", "the-|final-|-|countdown|"},
      {"Contiguous", "the|-|final|--|countdown|", "the|-|final|--|countdown|"},
  };
  for (const auto& c : cases) {
    for (const Json& pattern : {Json{{"String", "-"}}, Json{{"Regex", "-"}}}) {
      Json split{{"type", "Split"}, {"pattern", pattern}, {"behavior", c.behavior}};
      split["invert"] = false;
      EXPECT_EQ(pre_tokenized(split, "the-final--countdown"), c.straight) << c.behavior;
      split["invert"] = true;
      EXPECT_EQ(pre_tokenized(split, "the-final--countdown"), c.inverted) << c.behavior;
    }
  }
}

TEST(PreTokenizer, EveryStepDoesWhatItSays) {
  EXPECT_EQ(pre_tokenized({{"type", "Digits"}, {"individual_digits", true}}, "a12½b"),
            "a|1|2|½|b|");
  EXPECT_EQ(pre_tokenized({{"type", "Digits"}, {"individual_digits", false}}, "a12½b"), "a|12½|b|");
  EXPECT_EQ(pre_tokenized({{"type", "Punctuation"}}, "a«!b"), "a|«|!|b|");
  EXPECT_EQ(pre_tokenized({{"type", "Whitespace"}}, "a b!?  c"), "a|b|!?|c|");
  EXPECT_EQ(pre_tokenized({{"type", "WhitespaceSplit"}}, " a b!\u3000 c"), "a|b!|c|");
  const Json byte_level{{"type", "ByteLevel"}, {"add_prefix_space", true}};
  EXPECT_EQ(pre_tokenized(byte_level, "a b"), "Ġa|Ġb|");
  EXPECT_EQ(pre_tokenized(byte_level, " a"), "Ġa|");
  EXPECT_EQ(pre_tokenized(
                {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}, "a b"),
            "aĠb|");
  EXPECT_EQ(
      pre_tokenized(
          {{"type", "Sequence"},
           {"pretokenizers",
            {{{"type", "WhitespaceSplit"}}, {{"type", "Digits"}, {"individual_digits", true}}}}},
          "a1 b"),
      "a|1|b|");
}

TEST(PreTokenizer, MetaspacePrependsByItsScheme) {
  Json json = cutter();
  json["added_tokens"] = {{{"id", 900}, {"content", "<x>"}, {"special", true}}};
  const auto with = [&](const char* scheme, bool split) {
    json["pre_tokenizer"] = {
        {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", split}};
    return cut(json, "a b<x>c");
  };
  EXPECT_EQ(with("always", true), "▁a|▁b|<x>▁c|");
  EXPECT_EQ(with("first", true), "▁a|▁b|<x>c|");
  EXPECT_EQ(with("never", true), "a|▁b|<x>c|");
  EXPECT_EQ(with("always", false), "▁a▁b|<x>▁c|");
  json["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"add_prefix_space", false}};
  EXPECT_EQ(cut(json, "a b"), "a|▁b|");  // older files say "never" this way
}

TEST(AddedTokens, TheLongestOfTheLeftmostIsFound) {
  Json json = cutter();
  int id = 900;
  const auto add = [&](const char* content, const Json& options) {
    Json token{{"id", id++}, {"content", content}, {"normalized", false}};
    token.update(options);
    json["added_tokens"].push_back(token);
  };
  add("<a>", Json::object());
  add("<a>bc", Json::object());
  add("hat", {{"single_word", true}});
  add("<l>", {{"lstrip", true}});
  add("<r>", {{"rstrip", true}});
  EXPECT_EQ(cut(json, "x<a>b<a>bcd"), "x|<a>b|<a>bcd|");
  EXPECT_EQ(from(json).encode("<a>b<a>bc").size(), 3u);
  EXPECT_EQ(from(json).encode("hat").size(), 1u);
  EXPECT_EQ(from(json).encode("hat, hats").size(), 7u);  // the second is part of a word
  EXPECT_EQ(cut(json, "a <l> <r> b"), "a|<l> |<r>b|");
  EXPECT_EQ(cut(json, "a<r> \n <l>b"), "a|<r><l>b|");
}

TEST(AddedTokens, NormalizedOnesAreFoundInTheNormalizedText) {
  Json json = cutter();
  json["normalizer"] = {{"type", "Lowercase"}};
  json["added_tokens"] = {{{"id", 900}, {"content", "Hat"}, {"normalized", true}},
                          {{"id", 901}, {"content", "THE"}, {"normalized", false}}};
  const Tokenizer tokenizer = from(json);
  EXPECT_EQ(tokenizer.encode("HAT"), std::vector<std::int32_t>{900});
  EXPECT_EQ(tokenizer.encode("THE"), std::vector<std::int32_t>{901});
  EXPECT_EQ(tokenizer.encode("the").size(), 3u);
}

// ---- the model ----------------------------------------------------------------------------------

Json bpe(const Json& vocab, const Json& merges, const Json& options = Json::object()) {
  Json model{{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}};
  model.update(options);
  return {{"model", model}};
}

using Ids = std::vector<std::int32_t>;

TEST(BpeModel, JoinsTheBestPairFirstAndOfEqualsTheLeftmost) {
  const Json vocab{{"a", 0}, {"b", 1}, {"ab", 2}, {"ba", 3}, {"aba", 4}, {"aa", 5}};
  EXPECT_EQ(from(bpe(vocab, {"a b"})).encode("abab"), (Ids{2, 2}));
  EXPECT_EQ(from(bpe(vocab, Json::parse(R"([["b", "a"], ["a", "b"]])"))).encode("abab"),
            (Ids{0, 3, 1}));
  EXPECT_EQ(from(bpe(vocab, {"a b", "ab a"})).encode("ababa"), (Ids{2, 4}));
  EXPECT_EQ(from(bpe(vocab, {"a a"})).encode("aaa"), (Ids{5, 0}));
}

TEST(BpeModel, AWholeWordMayIgnoreTheMerges) {
  const Json vocab{{"a", 0}, {"b", 1}, {"ab", 2}};
  EXPECT_EQ(from(bpe(vocab, Json::array())).encode("ab"), (Ids{0, 1}));
  EXPECT_EQ(from(bpe(vocab, Json::array(), {{"ignore_merges", true}})).encode("ab"), (Ids{2}));
}

TEST(BpeModel, UnknownCharactersAreDroppedOrUnkOrBytes) {
  const Json vocab{{"a", 0}, {"<unk>", 1}, {"<0xC3>", 2}, {"<0xA9>", 3}};
  const auto encode = [&](const Json& options) {
    return from(bpe(vocab, Json::array(), options)).encode("aéxya");
  };
  EXPECT_EQ(encode(Json::object()), (Ids{0, 0}));
  EXPECT_EQ(encode({{"unk_token", "<unk>"}}), (Ids{0, 1, 1, 1, 0}));
  EXPECT_EQ(encode({{"unk_token", "<unk>"}, {"fuse_unk", true}}), (Ids{0, 1, 0}));
  EXPECT_EQ(encode({{"unk_token", "<unk>"}, {"byte_fallback", true}}), (Ids{0, 2, 3, 1, 1, 0}));
  EXPECT_TRUE(refuses(
      [&] {
        encode({{"unk_token", "[no]"}});
      },
      "the tokenizer has no token for \"é\", and its unk_token \"[no]\" is not in "
      "its vocabulary",
      ErrorCode::unsupported));
}

TEST(BpeModel, SubwordsMayCarryAPrefix) {
  const Json vocab{{"a", 0}, {"##b", 1}, {"ab", 2}};
  EXPECT_EQ(from(bpe(vocab, {"a ##b"}, {{"continuing_subword_prefix", "##"}})).encode("ab"),
            (Ids{2}));
}

TEST(PostProcessor, PutsTokensAroundTheText) {
  Json json = bpe({{"a", 0}, {"<s>", 1}, {"</s>", 2}}, Json::array());
  const Json tokens{{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}};
  const Json text{{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const Json start{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  json["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", {start, text, start}},
                            {"pair", Json::array()},
                            {"special_tokens", tokens}};
  EXPECT_EQ(from(json).encode("a", {.add_special = true}), (Ids{1, 0, 1}));
  EXPECT_EQ(from(json).encode("a"), (Ids{0}));
  for (const char* type : {"BertProcessing", "RobertaProcessing"}) {
    json["post_processor"] = {{"type", type}, {"cls", {"<s>", 1}}, {"sep", {"</s>", 2}}};
    EXPECT_EQ(from(json).encode("a", {.add_special = true}), (Ids{1, 0, 2}));
  }
}

TEST(Decoder, EveryStepDoesWhatItSays) {
  Json json = bpe({{"▁a", 0}, {"▁▁", 1}, {"b", 2}, {"<0xE2>", 3}, {"<0x82>", 4}, {"<0xAC>", 5}},
                  Json::array());
  const auto decode = [&](const Json& decoder, const Ids& ids) {
    json["decoder"] = decoder;
    return from(json).decode(ids);
  };
  const Json metaspace{{"type", "Metaspace"}, {"replacement", "▁"}};
  EXPECT_EQ(decode(nullptr, {0, 2}), "▁a b");
  EXPECT_EQ(decode(metaspace, {0, 0, 1}), "a a  ");
  EXPECT_EQ(decode(metaspace, {1, 0}), " a");
  EXPECT_EQ(decode({{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "never"}}, {0}),
            " a");
  EXPECT_EQ(decode({{"type", "ByteFallback"}}, {3, 4, 5, 2}), "€b");
  EXPECT_EQ(decode({{"type", "ByteFallback"}}, {3, 4, 2, 5}), "\uFFFD\uFFFDb\uFFFD");
  EXPECT_EQ(decode({{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", "_"}}, {1, 0}),
            "___a");
  const Json strip{{"type", "Strip"}, {"content", "▁"}, {"start", 1}, {"stop", 1}};
  EXPECT_EQ(decode(strip, {0, 1, 2}), "ab");
  const auto after_fuse = [](const Json& step) {
    return Json{{"type", "Sequence"}, {"decoders", {{{"type", "Fuse"}}, step}}};
  };
  EXPECT_EQ(decode(after_fuse(strip), {0, 2, 1}), "ab▁");
  EXPECT_EQ(decode(after_fuse(metaspace), {0, 0}), "aa");  // the whole text is the first token
  EXPECT_EQ(
      decode(after_fuse({{"type", "Replace"}, {"pattern", {{"Regex", "ab|b▁"}}}, {"content", "x"}}),
             {0, 2, 0}),
      "▁x▁a");
}

// ---- refusals -----------------------------------------------------------------------------------

TEST(TokenizerFile, RefusesByNameWhatItDoesNotSupport) {
  const Json good = bpe({{"a", 0}, {"b", 1}, {"ab", 2}}, {"a b"});
  const auto step = [](const char* type) { return Json{{"type", type}}; };
  const struct {
    const char* pointer;
    Json value;
    std::string expected;
    ErrorCode code = ErrorCode::unsupported;
  } cases[] = {
      {"/model/type", "WordPiece",
       "t.json: the model is of type \"WordPiece\", which is not supported; supported is BPE"},
      {"/model/type", "Unigram",
       "t.json: the model is of type \"Unigram\", which is not supported; supported is BPE"},
      {"/model/type", "WordLevel",
       "t.json: the model is of type \"WordLevel\", which is not supported; supported is BPE"},
      {"/model/dropout", 0.1,
       "t.json: the model has dropout, which makes every encoding a different one; set it to null"},
      {"/normalizer", step("Precompiled"),
       "t.json: the normalizer is of type \"Precompiled\", which is not supported; supported are "
       "NFC, NFD, NFKC, NFKD, Prepend, Replace, Lowercase, StripAccents, Strip, ByteLevel, "
       "Sequence"},
      {"/pre_tokenizer", step("UnicodeScripts"),
       "t.json: the pre_tokenizer is of type \"UnicodeScripts\", which is not supported; supported "
       "are ByteLevel, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, Metaspace, "
       "Sequence"},
      {"/decoder", step("WordPiece"),
       "t.json: the decoder is of type \"WordPiece\", which is not supported; supported are "
       "ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace, Sequence"},
      {"/post_processor", step("Other"),
       "t.json: the post_processor is of type \"Other\", which is not supported; supported are "
       "TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel, Sequence"},
      {"/version", "2.0", "t.json: version \"2.0\" is not supported; supported is 1.0"},
      {"/model", nullptr, "t.json: there is no 'model'", ErrorCode::file},
      {"/model/vocab", Json::array(),
       "t.json: the model: 'vocab' has to be an object of tokens and their ids", ErrorCode::file},
      {"/model/vocab/b", -1,
       "t.json: the model: the id of \"b\" is -1; ids are whole numbers from 0 to 2097151",
       ErrorCode::file},
      {"/model/vocab/b", 1e9,
       "t.json: the model: the id of \"b\" is 1000000000.0; ids are whole numbers from 0 to "
       "2097151",
       ErrorCode::file},
      {"/model/vocab/b", 0, "t.json: the model: two tokens have the id 0; one of them is \"b\"",
       ErrorCode::file},
      {"/model/merges",
       {"a b c"},
       "t.json: the model: merge 0 is \"\\\"a b c\\\"\"; a merge is \"a b\" or [\"a\", \"b\"]",
       ErrorCode::file},
      {"/model/merges",
       {"b a"},
       "t.json: the model: merge 0 needs the token \"ba\", which is not in the vocabulary",
       ErrorCode::file},
      {"/added_tokens",
       {{{"id", 1}, {"content", "ab"}}},
       "t.json: added_tokens: \"ab\" has the id 1, but 2 in the vocabulary",
       ErrorCode::file},
      {"/added_tokens",
       {{{"id", 1}, {"content", "c"}}},
       "t.json: added_tokens: \"c\" has the id 1, which is that of \"b\" in the vocabulary",
       ErrorCode::file},
      {"/added_tokens",
       {{{"id", 5}, {"content", "c"}}, {{"id", 5}, {"content", "d"}}},
       "t.json: added_tokens: \"d\" (id 5) is there twice",
       ErrorCode::file},
      {"/post_processor",
       {{"type", "BertProcessing"}, {"cls", {"x", 7}}, {"sep", {"y", 0}}},
       "t.json: the post_processor adds token 7, which does not exist",
       ErrorCode::file},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"behavior", "Removed"}},
       "t.json: the pre_tokenizer: Split needs a 'pattern' with a 'String' or a 'Regex'",
       ErrorCode::file},
      {"/pre_tokenizer",
       {{"type", "Sequence"}},
       "t.json: the pre_tokenizer: a Sequence needs a list 'pretokenizers'",
       ErrorCode::file},
      {"/pre_tokenizer",
       {{"type", "Metaspace"}, {"replacement", "ab"}},
       "t.json: the pre_tokenizer: 'replacement' of Metaspace is \"ab\"; it has to be one "
       "character",
       ErrorCode::file},
  };
  EXPECT_EQ(from(good).encode("ab"), (Ids{2}));
  for (const auto& c : cases) {
    Json bad = good;
    bad[Json::json_pointer(c.pointer)] = c.value;
    EXPECT_TRUE(refuses([&] { from(bad); }, c.expected, c.code));
  }
}

TEST(TokenizerFile, RefusesWhatIsNoObject) {
  EXPECT_TRUE(refuses([] { Tokenizer::from_json("[]", "t.json"); },
                      "t.json is an array of 0, it must be an object", ErrorCode::file));
}

}  // namespace
}  // namespace tessera::test
