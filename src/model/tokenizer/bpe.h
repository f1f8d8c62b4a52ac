// Byte-pair encoding: a word's characters become symbols. Neighbours that are in the list of merges
// are joined, the pair that is highest in the list first, until no such pair is left.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/vocabulary.h"

namespace tessera::model {

struct BpeOptions {
  std::optional<std::string> unk_token{};   // for characters that are not in the vocabulary
  std::string continuing_subword_prefix{};  // of every symbol but a word's first
  std::string end_of_word_suffix{};         // of a word's last symbol
  bool fuse_unk = false;                    // a run of unknown characters is one token
  bool byte_fallback = false;               // an unknown character is its bytes: <0x00> ... <0xFF>
  bool ignore_merges = false;               // a word that is in the vocabulary is that token
};

// A pair of tokens, by id, and the token they make.
struct Merge {
  std::int32_t left, right, result;
};

// From a pair to its rank in the list of merges. A flat table, because merging looks up every pair.
class MergeTable {
 public:
  MergeTable() = default;
  // The best first. Refuses pairs that collide beyond kMaxDisplacement; `where` starts the error.
  MergeTable(const std::vector<Merge>& merges, const std::string& where);

  static constexpr std::uint32_t kNone = UINT32_MAX;
  std::uint32_t rank(std::int32_t left, std::int32_t right) const;
  std::int32_t result(std::uint32_t rank) const { return results_[rank]; }
  // The lower bits are the slot where a pair belongs.
  static std::uint64_t hash(std::int32_t left, std::int32_t right);

 private:
  struct Slot {
    std::uint64_t pair;
    std::uint32_t rank;  // kNone if the slot is empty
  };
  std::vector<Slot> slots_;            // a power of two
  std::size_t displacement_ = 0;       // the largest of all entries: rank() looks no further
  std::vector<std::int32_t> results_;  // by rank
};

class Bpe {
 public:
  // Scratch of encode(), kept from word to word.
  struct Scratch {
    struct Symbol {
      std::int32_t id;  // kNoToken once it has been joined to the symbol before it
      std::int32_t previous, next;
    };
    std::vector<Symbol> symbols;
    std::vector<std::uint64_t> queue;
    const IdSet* forbidden = nullptr;  // for this word
  };

  Bpe() = default;
  Bpe(Vocabulary vocabulary, MergeTable merges, BpeOptions options);

  // Adds the word's ids. O(n log n) in its length. No merge makes a token of `forbidden`, if that
  // is not null. The unknown token and those of bytes are never forbidden.
  void encode(std::string_view word, const IdSet* forbidden, Scratch& scratch,
              std::vector<std::int32_t>& ids) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  std::int32_t find_character(std::string_view character, bool first, bool last) const;
  std::uint32_t rank(std::int32_t left, std::int32_t right, const Scratch& scratch) const;
  void add_symbols(std::string_view word, Scratch& scratch) const;
  bool add_bytes(std::string_view character, Scratch& scratch) const;
  void merge(Scratch& scratch) const;
  void push_pair(std::int32_t at, Scratch& scratch) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  BpeOptions options_;
  std::int32_t unk_ = kNoToken;
  std::array<std::int32_t, 256> byte_tokens_{};
  std::vector<std::int32_t> character_tokens_;  // by code point, for the first of them
};

}  // namespace tessera::model
