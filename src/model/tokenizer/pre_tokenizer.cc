#include "model/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/unicode.h"

namespace tessera::model {
namespace {

// A stretch of a piece: a delimiter, or what lies between two.
struct Stretch {
  std::size_t begin, end;
  bool delimiter;
};

// Joins the first delimiter of each run to what comes before it.
std::vector<Stretch> merge_with_previous(const std::vector<Stretch>& stretches) {
  std::vector<Stretch> merged;
  bool after_delimiter = false;
  for (const Stretch& stretch : stretches) {
    if (stretch.delimiter && !after_delimiter && !merged.empty()) {
      merged.back().end = stretch.end;
    } else {
      merged.push_back(stretch);
    }
    after_delimiter = stretch.delimiter;
  }
  return merged;
}

// Joins the last delimiter of each run to what comes after it.
std::vector<Stretch> merge_with_next(const std::vector<Stretch>& stretches) {
  std::vector<Stretch> merged;
  bool before_delimiter = false;
  for (auto stretch = stretches.rbegin(); stretch != stretches.rend(); ++stretch) {
    if (stretch->delimiter && !before_delimiter && !merged.empty()) {
      merged.back().begin = stretch->begin;
    } else {
      merged.push_back(*stretch);
    }
    before_delimiter = stretch->delimiter;
  }
  std::reverse(merged.begin(), merged.end());
  return merged;
}

std::vector<Stretch> merge_contiguous(const std::vector<Stretch>& stretches) {
  std::vector<Stretch> merged;
  for (const Stretch& stretch : stretches) {
    if (!merged.empty() && merged.back().delimiter == stretch.delimiter) {
      merged.back().end = stretch.end;
    } else {
      merged.push_back(stretch);
    }
  }
  return merged;
}

// Adds the pieces that the behaviour makes of one piece's stretches.
void add_pieces(const Piece& piece, std::vector<Stretch>& stretches, SplitBehavior behavior,
                std::vector<Piece>& out) {
  switch (behavior) {
    case SplitBehavior::removed:
    case SplitBehavior::isolated:
      break;
    case SplitBehavior::merged_with_previous:
      stretches = merge_with_previous(stretches);
      break;
    case SplitBehavior::merged_with_next:
      stretches = merge_with_next(stretches);
      break;
    case SplitBehavior::contiguous:
      stretches = merge_contiguous(stretches);
      break;
  }
  for (const Stretch& stretch : stretches) {
    if (stretch.begin == stretch.end) continue;
    if (behavior == SplitBehavior::removed && stretch.delimiter) continue;
    out.push_back({piece.begin + stretch.begin, piece.begin + stretch.end,
                   piece.at_start && stretch.begin == 0});
  }
}

std::string_view text_of(const Pieces& pieces, const Piece& piece) {
  return std::string_view(pieces.text).substr(piece.begin, piece.end - piece.begin);
}

void split_at_pattern(Pieces& pieces, const Pattern& pattern, SplitBehavior behavior, bool invert,
                      Effort& effort) {
  std::vector<Piece> out;
  std::vector<Span> matches;
  std::vector<Stretch> stretches;
  for (const Piece& piece : pieces.pieces) {
    const std::string_view text = text_of(pieces, piece);
    matches.clear();
    stretches.clear();
    pattern.find_all(text, effort, matches);
    std::size_t done = 0;
    for (const Span match : matches) {
      if (done != match.begin) stretches.push_back({done, match.begin, invert});
      stretches.push_back({match.begin, match.end, !invert});
      done = match.end;
    }
    if (done != text.size()) stretches.push_back({done, text.size(), invert});
    add_pieces(piece, stretches, behavior, out);
  }
  pieces.pieces = std::move(out);
}

template <typename IsDelimiter>
void split_at_characters(Pieces& pieces, IsDelimiter is_delimiter, SplitBehavior behavior) {
  std::vector<Piece> out;
  std::vector<Stretch> stretches;
  for (const Piece& piece : pieces.pieces) {
    const std::string_view text = text_of(pieces, piece);
    stretches.clear();
    std::size_t done = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t begin = at;
      if (!is_delimiter(next_code_point(text, at))) continue;
      if (done != begin) stretches.push_back({done, begin, false});
      stretches.push_back({begin, at, true});
      done = at;
    }
    if (done != text.size()) stretches.push_back({done, text.size(), false});
    add_pieces(piece, stretches, behavior, out);
  }
  pieces.pieces = std::move(out);
}

// Writes every piece anew: write(piece, its text, the new text).
template <typename Write>
void rewrite(Pieces& pieces, Write write) {
  std::string text;
  text.reserve(pieces.text.size());
  for (Piece& piece : pieces.pieces) {
    const std::size_t begin = text.size();
    write(piece, text_of(pieces, piece), text);
    piece.begin = begin;
    piece.end = text.size();
  }
  pieces.text = std::move(text);
}

struct ApplyPreTokenizer {
  Pieces& pieces;
  Effort& effort;

  void operator()(const SplitAtPattern& step) const {
    split_at_pattern(pieces, step.pattern, step.behavior, step.invert, effort);
  }

  void operator()(const SplitAtCharacters& step) const {
    split_at_characters(pieces, step.is_delimiter, step.behavior);
  }

  void operator()(const ByteLevel& step) const {
    if (step.add_prefix_space) {
      rewrite(pieces, [](const Piece&, std::string_view text, std::string& out) {
        if (!text.starts_with(' ')) out += ' ';
        out += text;
      });
    }
    if (step.pattern)
      split_at_pattern(pieces, *step.pattern, SplitBehavior::isolated, false, effort);
    rewrite(pieces, [](const Piece&, std::string_view text, std::string& out) {
      append_byte_level(out, text);
    });
  }

  void operator()(const Metaspace& step) const {
    rewrite(pieces, [&](const Piece& piece, std::string_view text, std::string& out) {
      const bool prepend = step.prepend == Metaspace::Prepend::always ||
                           (step.prepend == Metaspace::Prepend::first && piece.at_start);
      const bool has_it = text.starts_with(' ') || text.starts_with(step.replacement);
      if (prepend && !has_it) out += step.replacement;
      for (const char c : text) {
        if (c == ' ') {
          out += step.replacement;
        } else {
          out += c;
        }
      }
    });
    if (step.split) {
      std::size_t at = 0;
      const char32_t replacement = next_code_point(step.replacement, at);
      split_at_characters(
          pieces, [&](char32_t c) { return c == replacement; }, SplitBehavior::merged_with_next);
    }
  }
};

}  // namespace

void PreTokenizer::operator()(Pieces& pieces, Effort& effort) const {
  for (const PreTokenizerStep& step : steps) std::visit(ApplyPreTokenizer{pieces, effort}, step);
}

Pattern gpt2_pattern() {
  return Pattern(Regex::oniguruma(
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
      "ByteLevel"));
}

Pattern word_or_not_pattern() {
  return Pattern(
      Regex::pcre(R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}]+|)"
                  R"([^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}\p{White_Space}]+)",
                  "Whitespace"));
}

}  // namespace tessera::model
