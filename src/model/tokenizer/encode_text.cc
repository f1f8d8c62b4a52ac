#include "model/tokenizer/encode_text.h"

#include <string>

#include "core/fail.h"
#include "model/tokenizer/unicode.h"

namespace tessera::model {
namespace {

// The limit for the normalised text and its words together. An ordinary file turns one byte into
// some 40 at worst: U+FDFA becomes a sentence in a compatibility form, each of its spaces becomes
// three bytes, and each of these bytes a character of two.
constexpr std::size_t kMostBytesPerByte = 64;
constexpr std::size_t kMostBytesAtStart = 64 << 10;

// The work of encoding one text.
struct Work {
  std::size_t text_bytes;
  std::size_t made_bytes = 0;  // normalised, and cut into words
  Effort effort{};
  Bpe::Scratch scratch{};

  void add(std::size_t bytes) {
    made_bytes += bytes;
    if (made_bytes <= kMostBytesAtStart + kMostBytesPerByte * text_bytes) return;
    fail(ErrorCode::unsupported,
         "the tokenizer makes more than {} bytes of each byte of this text before it is cut into "
         "tokens",
         kMostBytesPerByte);
  }
};

// Adds the ids of a text that contains no added tokens.
void encode_words(const Tokenizer::Parts& parts, std::string_view text, bool at_start,
                  const IdSet* forbidden, Work& work, std::vector<std::int32_t>& ids) {
  Pieces pieces{std::string(text), {{0, text.size(), at_start}}};
  parts.pre_tokenizer(pieces, work.effort);
  work.add(pieces.text.size());
  const std::string_view words = pieces.text;
  for (const Piece& piece : pieces.pieces) {
    parts.bpe.encode(words.substr(piece.begin, piece.end - piece.begin), forbidden, work.scratch,
                     ids);
  }
}

}  // namespace

void check_utf8(std::string_view text) {
  const std::size_t wrong = find_invalid_utf8(text);
  if (wrong == std::string_view::npos) return;
  fail(ErrorCode::invalid_argument, "the text is not UTF-8: byte {} is 0x{:02X}", wrong,
       static_cast<unsigned char>(text[wrong]));
}

std::vector<std::int32_t> encode_text(const Tokenizer::Parts& parts, const TokenFinder& in_text,
                                      std::string_view text, const Foreign& foreign) {
  std::vector<std::int32_t> ids;
  Work work{.text_bytes = text.size()};
  for (const Segment& outer : in_text.split(text, foreign, work.effort)) {
    if (outer.id != kNoToken) {
      ids.push_back(outer.id);
      continue;
    }
    const std::string normalized = parts.normalizer(
        std::string(text.substr(outer.begin, outer.end - outer.begin)), work.effort);
    work.add(normalized.size());
    if (normalized.empty()) continue;
    // Normalising moves bytes: text that is partly foreign counts as foreign from here on.
    const bool is_foreign = foreign.touches({outer.begin, outer.end});
    const Foreign rest{is_foreign ? foreign.forbidden : nullptr, {{0, normalized.size()}}};
    for (const Segment& inner : parts.added.in_normalized.split(normalized, rest, work.effort)) {
      if (inner.id != kNoToken) {
        ids.push_back(inner.id);
        continue;
      }
      const auto words = std::string_view(normalized).substr(inner.begin, inner.end - inner.begin);
      encode_words(parts, words, outer.begin == 0 && inner.begin == 0, rest.forbidden, work, ids);
    }
  }
  return ids;
}

}  // namespace tessera::model
