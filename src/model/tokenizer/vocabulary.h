// The tokens of a BPE model: by id, and by how they are spelled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::model {

inline constexpr std::int32_t kNoToken = -1;
// Eight times the largest published vocabulary: a wrong file cannot make the tables any larger.
inline constexpr std::int64_t kMaxTokenId = (1 << 21) - 1;

// The most entries of a hash table that may lie between an entry and its place. Tables are at most
// half full, so that chance gives some 80 among millions of entries; a hostile file could give all.
inline constexpr std::size_t kMaxDisplacement = 1000;

class IdSet {
 public:
  void add(std::int32_t id) {
    const auto index = static_cast<std::size_t>(id);
    if (index >= has_.size()) has_.resize(index + 1);
    has_[index] = true;
  }
  bool has(std::int32_t id) const {
    const auto index = static_cast<std::size_t>(id);  // kNoToken is beyond every set
    return index < has_.size() && has_[index];
  }

 private:
  std::vector<bool> has_;  // by id
};

class Vocabulary {
 public:
  Vocabulary() = default;
  // Ids in [0, kMaxTokenId], each once, and every token once. Refuses tokens that collide beyond
  // kMaxDisplacement; `where` starts the error.
  Vocabulary(std::vector<std::pair<std::string, std::int32_t>>&& tokens, const std::string& where);

  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }  // last id + 1
  bool has(std::int32_t id) const;
  std::string_view token(std::int32_t id) const;    // empty if there is none
  std::int32_t find(std::string_view token) const;  // kNoToken if there is none

 private:
  std::vector<std::string> tokens_;  // by id
  std::vector<bool> present_;        // by id
  std::vector<std::int32_t> slots_;  // open addressing by the token's hash; a power of two
  std::size_t displacement_ = 0;     // the largest of all entries: find() looks no further
};

}  // namespace tessera::model
