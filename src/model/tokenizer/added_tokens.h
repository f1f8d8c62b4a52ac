// Tokens that are found in the text itself, before it is split: <|endoftext|>, <s>, runs of spaces.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/tokenizer/regex.h"
#include "model/tokenizer/vocabulary.h"

namespace tessera::model {

struct AddedToken {
  std::int32_t id = kNoToken;
  std::string content{};
  bool single_word = false;  // not inside a longer word
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool normalized = true;    // is searched for in the normalised text
  bool special = false;      // is left out of decoded text on request
};

// A stretch of a text: an added token, or what lies between two (id is kNoToken).
struct Segment {
  std::size_t begin, end;
  std::int32_t id;
};

// The stretches of a text that somebody else wrote, and the tokens that may not come out of them.
struct Foreign {
  const IdSet* forbidden = nullptr;  // null: everything is allowed
  std::vector<Span> spans{};         // in order; none is empty, none overlaps another

  bool touches(Span span) const { return first_touched(span) != spans.end(); }
  // Whether a forbidden token lies in such a stretch, or crosses the edge of one.
  bool forbids(std::int32_t id, Span span) const;

 private:
  std::vector<Span>::const_iterator first_touched(Span span) const;
};

// Finds a set of tokens in a text: the leftmost first, and the longest of those that begin there.
class TokenFinder {
 public:
  // `written`: the text to search for.
  void add(std::string_view written, const AddedToken& token);
  // Cuts the whole text into segments; none is empty. Forbidden tokens count as not added.
  std::vector<Segment> split(std::string_view text, const Foreign& foreign, Effort& effort) const;

 private:
  struct Node {
    std::vector<std::pair<unsigned char, std::int32_t>> next{};  // by byte: the node it leads to
    std::int32_t token = -1;                                     // of tokens_, that ends here
  };
  struct Found {
    std::size_t end;
    std::int32_t token;  // of tokens_; -1 if none begins here
  };
  Found longest_at(std::string_view text, std::size_t at, const Foreign& foreign,
                   Effort& effort) const;
  bool stands_alone(std::string_view text, Span found, Effort& effort) const;

  std::vector<Node> nodes_{Node{}};
  std::vector<AddedToken> tokens_;
  std::optional<Regex> word_character_;  // made for the first single_word token
};

// All added tokens of a tokenizer.
struct AddedTokens {
  struct Entry {
    AddedToken token;
    std::string decoded;  // the text for the decoder
  };
  TokenFinder in_text;        // before normalising
  TokenFinder in_normalized;  // after it
  std::unordered_map<std::int32_t, Entry> by_id;
  std::unordered_map<std::string, std::int32_t> by_content;
  std::int32_t last_id = kNoToken;
};

}  // namespace tessera::model
