// From the command line to the ids that a model reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/model_config.h"
#include "tessera/tokenizer.h"

namespace tessera::app {

// All of a regular file of at most 1 GiB; "-" is standard input, which may be a pipe.
std::string read_text_file(const std::string& name);

// "1,2,3", with or without spaces. Of --prompt-ids: errors name it.
std::vector<std::int32_t> parse_ids(std::string_view text);

// How a text begins: as transformers' tokenizer(text) begins it. The post-processor of
// tokenizer.json adds its special tokens; add_bos_token of tokenizer_config.json, true or false,
// then decides about the bos token. A text that already begins with it gets no second one.
class PromptEncoder {
 public:
  PromptEncoder(const Tokenizer& tokenizer, const ModelConfig& config,
                const std::filesystem::path& directory);

  std::vector<std::int32_t> encode(std::string_view text) const;
  // The token that encode() puts in front; -1: none.
  std::int64_t bos() const;

 private:
  enum class AddBos : std::uint8_t { as_post_processor, yes, no };

  const Tokenizer& tokenizer_;
  AddBos add_bos_ = AddBos::as_post_processor;
  std::int64_t bos_ = -1;
};

}  // namespace tessera::app
