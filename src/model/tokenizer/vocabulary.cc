#include "model/tokenizer/vocabulary.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>

namespace tessera::model {

Vocabulary::Vocabulary(std::vector<std::pair<std::string, std::int32_t>>&& tokens) {
  std::int32_t last = kNoToken;
  for (const auto& [token, id] : tokens) last = std::max(last, id);
  tokens_.resize(static_cast<std::size_t>(last) + 1);  // none where there is no token: -1 + 1
  present_.resize(tokens_.size());
  slots_.assign(std::bit_ceil(2 * tokens.size() + 1), kNoToken);
  const std::size_t mask = slots_.size() - 1;
  for (auto& [token, id] : tokens) {
    const auto index = static_cast<std::size_t>(id);
    std::size_t slot = std::hash<std::string_view>{}(token)&mask;
    while (slots_[slot] != kNoToken) slot = (slot + 1) & mask;
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
  while (slots_[slot] != kNoToken && tokens_[static_cast<std::size_t>(slots_[slot])] != token) {
    slot = (slot + 1) & mask;
  }
  return slots_[slot];
}

}  // namespace tessera::model
