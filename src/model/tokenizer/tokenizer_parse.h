// The parts of a tokenizer.json, each from its own member. All refuse by name what they do not
// support, and start their errors with `where`.
#pragma once

#include <string>

#include "model/checkpoint/json.h"
#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/decoder.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/post_processor.h"
#include "model/tokenizer/pre_tokenizer.h"

namespace tessera::model {

// A value as text for an error: a number as it is, anything else in quotes.
std::string shown(const Json& value);

// tokenizer_parse_steps.cc. A null pointer is a member that is missing or null.
Normalizer parse_normalizer(const Json* json, const std::string& where);
PreTokenizer parse_pre_tokenizer(const Json* json, const std::string& where);
Decoder parse_decoder(const Json* json, const std::string& where);
PostProcessor parse_post_processor(const Json* json, const std::string& where);

// tokenizer_parse_model.cc
Bpe parse_model(const Json* json, const std::string& where);
AddedTokens parse_added_tokens(const Json* json, const Normalizer& normalizer,
                               const Vocabulary& vocabulary, const std::string& where);

}  // namespace tessera::model
