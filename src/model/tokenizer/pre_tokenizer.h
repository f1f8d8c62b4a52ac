// Cutting a text into the words that BPE then works on, each alone.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "model/tokenizer/regex.h"

namespace tessera::model {

struct Piece {
  std::size_t begin, end;  // bytes of Pieces::text
  bool at_start;           // begins where the whole text begins
};

struct Pieces {
  std::string text;
  std::vector<Piece> pieces;  // in order; what lies between them is dropped
};

// What becomes of the delimiters that a text is cut at.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

struct SplitAtPattern {
  Pattern pattern;
  SplitBehavior behavior;
  bool invert;  // the delimiters are what the pattern does not match
};
struct SplitAtCharacters {
  bool (*is_delimiter)(char32_t);  // each is a delimiter of its own
  SplitBehavior behavior;
};
struct ByteLevel {
  bool add_prefix_space;
  std::optional<Pattern> pattern;  // cuts before bytes become characters
};
struct Metaspace {
  enum class Prepend { always, first, never };
  std::string replacement;  // for a space
  Prepend prepend;
  bool split;
};

using PreTokenizerStep = std::variant<SplitAtPattern, SplitAtCharacters, ByteLevel, Metaspace>;

struct PreTokenizer {
  std::vector<PreTokenizerStep> steps;  // one after the other, each on every piece
  void operator()(Pieces& pieces, Effort& effort) const;
};

Pattern gpt2_pattern();         // what ByteLevel cuts with
Pattern word_or_not_pattern();  // words, and runs of what is neither a word nor white space

}  // namespace tessera::model
