// How much longer the steps of a tokenizer can make a text. A few dozen steps that each double it
// would ask for more memory than there is: such a file is refused when it is read.
#pragma once

#include "model/tokenizer/decoder.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/pre_tokenizer.h"

namespace tessera::model {

// By this count published tokenizers reach a hundred (a compatibility normal form, a space that
// becomes three bytes, one of them put in front).
inline constexpr double kMaxGrowth = 1000;

// At most this many bytes come out for each byte that goes in.
double growth_of(const NormalizerStep& step);
double growth_of(const PreTokenizerStep& step);
double growth_of(const DecoderStep& step);

}  // namespace tessera::model
