// From text to ids: added tokens are cut out, the rest is normalised, cut into words and merged.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/tokenizer_parts.h"

namespace tessera::model {

// Refuses text that is not UTF-8, with the offset of the first wrong byte.
void check_utf8(std::string_view text);

// The text must be UTF-8. `in_text` finds the added tokens that are searched for before
// normalising. A word that is even partly foreign gives no forbidden token.
std::vector<std::int32_t> encode_text(const Tokenizer::Parts& parts, const TokenFinder& in_text,
                                      std::string_view text, const Foreign& foreign);

}  // namespace tessera::model
