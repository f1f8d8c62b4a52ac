// How much longer the steps of a tokenizer can make a text. A few dozen steps that each double it
// would need more memory than there is: such a file is refused when it is read.
#pragma once

#include <string>
#include <vector>

#include "model/tokenizer/decoder.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/pre_tokenizer.h"

namespace tessera::model {

// The limit for normalizer and pre_tokenizer together, and for the decoder. By this count published
// tokenizers reach 132 (a compatibility normal form, spaces that become three bytes, one
// prepended).
inline constexpr double kMaxGrowth = 250;

// At most this many bytes come out for each byte that goes in.
double growth_of(const NormalizerStep& step);
double growth_of(const PreTokenizerStep& step);
double growth_of(const DecoderStep& step);

// The growth of several steps, one after the other.
template <typename Step>
double growth_of(const std::vector<Step>& steps) {
  double growth = 1;
  for (const Step& step : steps) growth *= growth_of(step);
  return growth;
}

// Refuses more than kMaxGrowth; `what` starts the error.
void check_growth(double growth, const std::string& what);

}  // namespace tessera::model
