// The parts of a tokenizer. None of them changes after loading: threads share them freely.
#pragma once

#include <string>

#include "model/checkpoint/json.h"
#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/decoder.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/post_processor.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "tessera/tokenizer.h"

namespace tessera {

struct Tokenizer::Parts {
  model::Normalizer normalizer;
  model::PreTokenizer pre_tokenizer;
  model::Bpe bpe;
  model::AddedTokens added;
  model::IdSet special;  // of the added tokens
  model::PostProcessor post_processor;
  model::Decoder decoder;
};

namespace model {

// From a tokenizer.json; `where` names it in errors. Refuses by name what it does not support.
Tokenizer::Parts parse_tokenizer(const Json& json, const std::string& where);

}  // namespace model
}  // namespace tessera
