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
// Eight times the largest published vocabulary: a wrong file cannot ask for more memory.
inline constexpr std::int64_t kMaxTokenId = (1 << 21) - 1;

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
  // Ids in [0, kMaxTokenId], each once, and every token once.
  explicit Vocabulary(std::vector<std::pair<std::string, std::int32_t>>&& tokens);

  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }  // last id + 1
  bool has(std::int32_t id) const;
  std::string_view token(std::int32_t id) const;    // empty where there is none
  std::int32_t find(std::string_view token) const;  // kNoToken where there is none

 private:
  std::vector<std::string> tokens_;  // by id
  std::vector<bool> present_;        // by id
  std::vector<std::int32_t> slots_;  // open addressing by the token's hash; a power of two
};

}  // namespace tessera::model
