// The chains of small steps in a tokenizer.json: normalizer, pre_tokenizer, decoder,
// post_processor. Each is one object with a "type", or a Sequence of such.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "core/fail.h"
#include "model/checkpoint/quote.h"
#include "model/tokenizer/tokenizer_growth.h"
#include "model/tokenizer/tokenizer_parse.h"
#include "model/tokenizer/unicode.h"

namespace tessera::model {
namespace {

// Calls parse(step) for an object, or for each object of a Sequence, in order.
template <typename Parse>
void for_each_step(const Json& json, const char* list, const std::string& where, Parse& parse) {
  const JsonView step(json, where);
  if (step.string("type") != "Sequence") return parse(step);
  const Json* const members = step.find(list);
  if (members == nullptr || !members->is_array()) {
    fail(ErrorCode::file, "{}: a Sequence needs a list '{}'", where, list);
  }
  for (const Json& member : *members) for_each_step(member, list, where, parse);
}

[[noreturn]] void refuse(const JsonView& step, std::string_view supported) {
  fail(ErrorCode::unsupported, "{} is of type {}, which is not supported; supported are {}",
       step.where(), in_quotes(step.string("type")), supported);
}

Pattern parse_pattern(const JsonView& step) {
  const std::optional<JsonView> pattern = step.optional_object("pattern");
  if (pattern && pattern->has("Regex")) {
    return Pattern(Regex::oniguruma(pattern->string("Regex"), step.where()));
  }
  if (!pattern || !pattern->has("String")) {
    fail(ErrorCode::file, "{}: {} needs a 'pattern' with a 'String' or a 'Regex'", step.where(),
         step.string("type"));
  }
  std::string literal = pattern->string("String");
  if (literal.empty() || literal.size() > kMaxPatternBytes) {
    fail(ErrorCode::unsupported, "{}: the pattern of {} has {} bytes; 1 to {} are accepted",
         step.where(), step.string("type"), literal.size(), kMaxPatternBytes);
  }
  return Pattern(std::move(literal));
}

char32_t parse_character(const JsonView& step, std::string_view key) {
  const std::string text = step.string(key);
  std::size_t at = 0;
  const char32_t c = text.empty() ? 0 : next_code_point(text, at);
  if (text.empty() || at != text.size()) {
    fail(ErrorCode::file, "{}: '{}' of {} is {}; it has to be one character", step.where(), key,
         step.string("type"), in_quotes(text));
  }
  return c;
}

SplitBehavior parse_behavior(const JsonView& step) {
  constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kNames = {{
      {"Isolated", SplitBehavior::isolated},
      {"Removed", SplitBehavior::removed},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next},
      {"Contiguous", SplitBehavior::contiguous},
  }};
  const std::string given = step.optional_string("behavior").value_or("Isolated");
  for (const auto& [name, behavior] : kNames) {
    if (given == name) return behavior;
  }
  fail(ErrorCode::unsupported,
       "{}: the behavior {} is not supported; supported are Isolated, Removed, "
       "MergedWithPrevious, MergedWithNext, Contiguous",
       step.where(), in_quotes(given));
}

// "prepend_scheme", or the older "add_prefix_space".
Metaspace::Prepend parse_prepend(const JsonView& step) {
  const std::optional<std::string> scheme = step.optional_string("prepend_scheme");
  const std::optional<bool> space = step.optional_boolean("add_prefix_space");
  if (scheme && space == false && *scheme != "never") {
    fail(ErrorCode::file, "{}: Metaspace has add_prefix_space false and prepend_scheme {}",
         step.where(), in_quotes(*scheme));
  }
  if (scheme == "never" || (!scheme && space == false)) return Metaspace::Prepend::never;
  if (scheme == "first") return Metaspace::Prepend::first;
  if (!scheme || scheme == "always") return Metaspace::Prepend::always;
  fail(ErrorCode::unsupported,
       "{}: the prepend_scheme {} is not supported; supported are always, first, never",
       step.where(), in_quotes(*scheme));
}

NormalizerStep parse_normalizer_step(const JsonView& step) {
  const std::string type = step.string("type");
  if (type == "NFC") return NormalForm::nfc;
  if (type == "NFD") return NormalForm::nfd;
  if (type == "NFKC") return NormalForm::nfkc;
  if (type == "NFKD") return NormalForm::nfkd;
  if (type == "Prepend") return Prepend{step.string("prepend")};
  if (type == "Replace") return Replace{parse_pattern(step), step.string("content")};
  if (type == "Lowercase") return Lowercase{};
  if (type == "StripAccents") return StripAccents{};
  if (type == "ByteLevel") return ByteLevelCharacters{};
  if (type == "Strip") {
    return StripWhiteSpace{step.optional_boolean("strip_left").value_or(true),
                           step.optional_boolean("strip_right").value_or(true)};
  }
  refuse(step,
         "NFC, NFD, NFKC, NFKD, Prepend, Replace, Lowercase, StripAccents, Strip, ByteLevel, "
         "Sequence");
}

PreTokenizerStep parse_pre_tokenizer_step(const JsonView& step) {
  const std::string type = step.string("type");
  if (type == "ByteLevel") {
    ByteLevel result{step.optional_boolean("add_prefix_space").value_or(true), {}};
    if (step.optional_boolean("use_regex").value_or(true)) result.pattern = gpt2_pattern();
    return result;
  }
  if (type == "Split") {
    return SplitAtPattern{parse_pattern(step), parse_behavior(step),
                          step.optional_boolean("invert").value_or(false)};
  }
  if (type == "Digits") {
    const bool each = step.optional_boolean("individual_digits").value_or(false);
    return SplitAtCharacters{is_number, each ? SplitBehavior::isolated : SplitBehavior::contiguous};
  }
  if (type == "Punctuation") return SplitAtCharacters{is_punctuation, parse_behavior(step)};
  if (type == "Whitespace") {
    return SplitAtPattern{word_or_not_pattern(), SplitBehavior::removed, true};
  }
  if (type == "WhitespaceSplit") return SplitAtCharacters{is_white_space, SplitBehavior::removed};
  if (type == "Metaspace") {
    std::string replacement;
    append_utf8(replacement, parse_character(step, "replacement"));
    return Metaspace{std::move(replacement), parse_prepend(step),
                     step.optional_boolean("split").value_or(true)};
  }
  refuse(step,
         "ByteLevel, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, Metaspace, Sequence");
}

DecoderStep parse_decoder_step(const JsonView& step) {
  constexpr std::int64_t kMaxStrip = 1 << 20;
  const std::string type = step.string("type");
  if (type == "ByteLevel") return BytesFromByteLevel{};
  if (type == "ByteFallback") return BytesFromFallback{};
  if (type == "Fuse") return Fuse{};
  if (type == "Replace") return Replace{parse_pattern(step), step.string("content")};
  if (type == "Strip") {
    return StripCharacters{parse_character(step, "content"), step.integer("start", 0, kMaxStrip),
                           step.integer("stop", 0, kMaxStrip)};
  }
  if (type == "Metaspace") {
    return MetaspaceToSpace{parse_character(step, "replacement"),
                            parse_prepend(step) != Metaspace::Prepend::never};
  }
  refuse(step, "ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace, Sequence");
}

// The ids of a TemplateProcessing's special token.
void add_template_token(const JsonView& step, const std::string& name,
                        std::vector<std::int32_t>& frame) {
  const std::optional<JsonView> tokens = step.optional_object("special_tokens");
  const Json* const token = tokens ? tokens->find(name) : nullptr;
  const Json* const ids = token != nullptr ? JsonView(*token, step.where()).find("ids") : nullptr;
  if (ids == nullptr || !ids->is_array()) {
    fail(ErrorCode::file, "{}: the template's token {} has no ids in special_tokens", step.where(),
         in_quotes(name));
  }
  for (const Json& id : *ids) {
    if (!id.is_number_integer() || id < 0 || id > kMaxTokenId) {
      fail(ErrorCode::file, "{}: an id of the template's token {} is {}, which is no token id",
           step.where(), in_quotes(name), shown(id));
    }
    frame.push_back(id.get<std::int32_t>());
  }
}

std::vector<std::int32_t> parse_template(const JsonView& step) {
  std::vector<std::int32_t> frame;
  const Json* const single = step.find("single");
  if (single == nullptr || !single->is_array()) {
    fail(ErrorCode::file, "{}: TemplateProcessing needs a list 'single'", step.where());
  }
  for (const Json& element : *single) {
    const JsonView piece(element, step.where());
    if (const std::optional<JsonView> token = piece.optional_object("SpecialToken")) {
      add_template_token(step, token->string("id"), frame);
      continue;
    }
    const std::optional<JsonView> sequence = piece.optional_object("Sequence");
    if (!sequence || sequence->string("id") != "A") {
      fail(ErrorCode::file,
           "{}: the template for a single text has a piece that is neither a SpecialToken nor the "
           "Sequence A",
           step.where());
    }
    frame.push_back(kNoToken);
  }
  const auto texts = std::count(frame.begin(), frame.end(), kNoToken);
  constexpr std::size_t kMaxFrame = 256;
  if (texts > 1 || frame.size() > kMaxFrame) {
    fail(ErrorCode::unsupported,
         "{}: the template has the text {} times and {} tokens around it; once and at most {} are "
         "accepted",
         step.where(), texts, frame.size() - static_cast<std::size_t>(texts), kMaxFrame - 1);
  }
  return frame;
}

// BertProcessing and RobertaProcessing: ["<s>", 0] before the text, ["</s>", 2] after it.
std::vector<std::int32_t> parse_cls_and_sep(const JsonView& step) {
  const auto id_of = [&](const char* key) {
    const Json* const pair = step.find(key);
    if (pair == nullptr || !pair->is_array() || pair->size() != 2 ||
        !(*pair)[1].is_number_integer() || (*pair)[1] < 0 || (*pair)[1] > kMaxTokenId) {
      fail(ErrorCode::file, "{}: '{}' has to be a token and its id", step.where(), key);
    }
    return (*pair)[1].get<std::int32_t>();
  };
  return {id_of("cls"), kNoToken, id_of("sep")};
}

// Adds a step to a chain. Every step is one more pass over every text.
template <typename Step>
void add_step(std::vector<Step>& steps, Step step, const std::string& where) {
  constexpr std::size_t kMaxSteps = 64;
  if (steps.size() == kMaxSteps) {
    fail(ErrorCode::unsupported, "{} has more than {} steps", where, kMaxSteps);
  }
  steps.push_back(std::move(step));
}

}  // namespace

Normalizer parse_normalizer(const Json* json, const std::string& where) {
  Normalizer normalizer;
  const auto add = [&](const JsonView& step) {
    add_step(normalizer.steps, parse_normalizer_step(step), step.where());
  };
  if (json != nullptr) for_each_step(*json, "normalizers", where + ": the normalizer", add);
  check_growth(growth_of(normalizer.steps), where + ": the normalizer");
  return normalizer;
}

PreTokenizer parse_pre_tokenizer(const Json* json, const std::string& where) {
  PreTokenizer pre_tokenizer;
  const auto add = [&](const JsonView& step) {
    add_step(pre_tokenizer.steps, parse_pre_tokenizer_step(step), step.where());
  };
  if (json != nullptr) for_each_step(*json, "pretokenizers", where + ": the pre_tokenizer", add);
  return pre_tokenizer;
}

Decoder parse_decoder(const Json* json, const std::string& where) {
  std::vector<DecoderStep> steps;
  const auto add = [&](const JsonView& step) {
    add_step(steps, parse_decoder_step(step), step.where());
  };
  if (json == nullptr) {
    steps.emplace_back(JoinWithSpaces{});
  } else {
    for_each_step(*json, "decoders", where + ": the decoder", add);
  }
  check_growth(growth_of(steps), where + ": the decoder");
  return Decoder(std::move(steps));
}

PostProcessor parse_post_processor(const Json* json, const std::string& where) {
  PostProcessor result;
  bool framed = false;
  const auto add = [&](const JsonView& step) {
    const std::string type = step.string("type");
    if (type == "ByteLevel") return;  // moves offsets, changes no ids
    if (type != "TemplateProcessing" && type != "BertProcessing" && type != "RobertaProcessing") {
      refuse(step, "TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel, Sequence");
    }
    if (std::exchange(framed, true)) {
      fail(ErrorCode::unsupported, "{}: only one step of a Sequence can add tokens", step.where());
    }
    result.frame = type == "TemplateProcessing" ? parse_template(step) : parse_cls_and_sep(step);
  };
  if (json != nullptr) for_each_step(*json, "processors", where + ": the post_processor", add);
  return result;
}

}  // namespace tessera::model
