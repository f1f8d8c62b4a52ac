#include "model/tokenizer/vocabulary.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>

#include "core/fail.h"

namespace tessera::model {

Vocabulary::Vocabulary(std::vector<std::pair<std::string, std::int32_t>>&& tokens,
                       const std::string& where) {
  std::int32_t last = kNoToken;
  for (const auto& [token, id] : tokens) last = std::max(last, id);
  tokens_.resize(static_cast<std::size_t>(last) + 1);  // empty if there is no token: -1 + 1
  present_.resize(tokens_.size());
  slots_.assign(std::bit_ceil(2 * tokens.size() + 1), kNoToken);
  const std::size_t mask = slots_.size() - 1;
  for (auto& [token, id] : tokens) {
    const auto index = static_cast<std::size_t>(id);
    std::size_t slot = std::hash<std::string_view>{}(token)&mask;
    std::size_t moved = 0;
    for (; slots_[slot] != kNoToken; ++moved) slot = (slot + 1) & mask;
    displacement_ = std::max(displacement_, moved);
    if (moved > kMaxDisplacement) {
      fail(ErrorCode::file, "{}: more than {} tokens have one hash", where, kMaxDisplacement);
    }
    slots_[slot] = id;
    tokens_[index] = std::move(token);
    present_[index] = true;
  }
}

bool Vocabulary::has(std::int32_t id) const {
  return id >= 0 && id < size() && present_[static_cast<std::size_t>(id)];
}

std::string_view Vocabulary::token(std::int32_t id) const {
  return has(id) ? std::string_view(tokens_[static_cast<std::size_t>(id)]) : std::string_view();
}

std::int32_t Vocabulary::find(std::string_view token) const {
  if (slots_.empty()) return kNoToken;
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = std::hash<std::string_view>{}(token)&mask;
  for (std::size_t moved = 0; moved <= displacement_ && slots_[slot] != kNoToken; ++moved) {
    if (tokens_[static_cast<std::size_t>(slots_[slot])] == token) return slots_[slot];
    slot = (slot + 1) & mask;
  }
  return kNoToken;
}

}  // namespace tessera::model
