// How the ids that a model reads begin.
//
// Threads: a PromptEncoder never changes, and any number may use it at the same time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "tessera/model_config.h"
#include "tessera/tokenizer.h"

namespace tessera {

// Begins a text as transformers' tokenizer(text) does. The post-processor of tokenizer.json adds
// its special tokens; add_bos_token of tokenizer_config.json, true or false, then decides about the
// bos token. A text that already begins with it gets no second one.
class PromptEncoder {
 public:
  // The tokenizer must outlive it. The folder may have a tokenizer_config.json.
  PromptEncoder(const Tokenizer& tokenizer, const ModelConfig& config,
                const std::filesystem::path& directory);

  // A prompt of your own: special tokens in it are recognised.
  std::vector<std::int32_t> encode(std::string_view text) const;
  // The same for a text that is already ids.
  std::vector<std::int32_t> begin(std::vector<std::int32_t> ids) const;
  // The token that encode() puts in front; -1: none.
  std::int64_t bos() const;
  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  enum class AddBos : std::uint8_t { as_post_processor, yes, no };

  const Tokenizer* tokenizer_;
  AddBos add_bos_ = AddBos::as_post_processor;
  std::int64_t bos_ = -1;
};

}  // namespace tessera
