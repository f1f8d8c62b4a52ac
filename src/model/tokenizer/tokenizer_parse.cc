#include "model/tokenizer/tokenizer_parse.h"

#include <utility>

#include "core/fail.h"
#include "model/checkpoint/quote.h"
#include "model/tokenizer/tokenizer_growth.h"
#include "model/tokenizer/tokenizer_parts.h"

namespace tessera::model {
namespace {

void check_frame(const Tokenizer::Parts& parts, const std::string& where) {
  for (const std::int32_t id : parts.post_processor.frame) {
    if (id != kNoToken && !parts.bpe.vocabulary().has(id) && !parts.added.by_id.contains(id)) {
      fail(ErrorCode::file, "{}: the post_processor adds token {}, which does not exist", where,
           id);
    }
  }
}

}  // namespace

std::string shown(const Json& value) {
  return value.is_number() ? value.dump() : in_quotes(value.dump());
}

// "truncation" and "padding" are not read: they say how batches were once made, and a prompt is
// neither truncated nor padded.
Tokenizer::Parts parse_tokenizer(const Json& json, const std::string& where) {
  const JsonView file(json, where);
  const std::string version = file.optional_string("version").value_or("1.0");
  if (version != "1.0") {
    fail(ErrorCode::unsupported, "{}: version {} is not supported; supported is 1.0", where,
         in_quotes(version));
  }
  Tokenizer::Parts parts;
  parts.normalizer = parse_normalizer(file.find("normalizer"), where);
  parts.pre_tokenizer = parse_pre_tokenizer(file.find("pre_tokenizer"), where);
  check_growth(growth_of(parts.normalizer.steps) * growth_of(parts.pre_tokenizer.steps),
               where + ": the normalizer and the pre_tokenizer together");
  parts.bpe = parse_model(file.find("model"), where);
  parts.added = parse_added_tokens(file.find("added_tokens"), parts.normalizer,
                                   parts.bpe.vocabulary(), where);
  for (const auto& [id, entry] : parts.added.by_id) {
    if (entry.token.special) parts.special.add(id);
  }
  parts.post_processor = parse_post_processor(file.find("post_processor"), where);
  parts.decoder = parse_decoder(file.find("decoder"), where);
  check_frame(parts, where);
  return parts;
}

}  // namespace tessera::model
