#include "engine/text_out.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr std::size_t kLeadTokens = 16;  // of the prompt that the decoder sees

}  // namespace

TextOut::TextOut(const Tokenizer* tokenizer, std::span<const std::int32_t> prompt,
                 const std::vector<std::string>& stops)
    : tokenizer_(tokenizer), stops_(stops) {
  if (tokenizer == nullptr) return;
  decoder_.emplace(*tokenizer);
  for (const std::int32_t id : prompt.last(std::min(prompt.size(), kLeadTokens))) decode(id);
}

std::string TextOut::push(std::int32_t id) { return stops_.push(decode(id)); }

std::string TextOut::finish() {
  if (!decoder_) return {};
  std::string text = stops_.push(decoder_->finish());
  return text + stops_.finish();
}

// Models pad their vocabulary. Ids without a token have no text.
std::string TextOut::decode(std::int32_t id) {
  if (!decoder_ || id >= tokenizer_->vocab_size() || tokenizer_->token(id).empty()) return {};
  return decoder_->push(id);
}

}  // namespace tessera
