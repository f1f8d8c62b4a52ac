// How tokens are spelled in lists of log-probabilities.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/tokenizer.h"

namespace tessera::server {

// The text that a token adds behind others: " the", with its space. A token that is a part of a
// character has no text of its own and is spelled as in the vocabulary.
std::string token_text(const Tokenizer& tokenizer, std::int32_t id);
// The bytes that it adds. Those of the parts of a character make up the character.
std::string token_bytes(const Tokenizer& tokenizer, std::int32_t id);

}  // namespace tessera::server
