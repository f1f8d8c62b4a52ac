// What a tokenizer does to a text before it is split: Unicode normal forms, replacements, case.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "model/tokenizer/regex.h"

namespace tessera::model {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

struct Prepend {  // leaves an empty text empty
  std::string text;
};
struct Replace {
  Pattern pattern;
  std::string content;  // literal, without references to groups
};
struct StripWhiteSpace {
  bool left, right;
};
struct Lowercase {};
struct StripAccents {};         // removes all marks
struct ByteLevelCharacters {};  // each byte as its character of byte_level.h

using NormalizerStep = std::variant<NormalForm, Prepend, Replace, StripWhiteSpace, Lowercase,
                                    StripAccents, ByteLevelCharacters>;

struct Normalizer {
  std::vector<NormalizerStep> steps;  // one after the other
  std::string operator()(std::string text, Effort& effort) const;
};

// Replaces every match of the pattern; the decoder uses this too.
std::string replace_all(const Replace& replace, const std::string& text, Effort& effort);

}  // namespace tessera::model
