// From what the command line says to the ids that a model reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/model_config.h"
#include "tessera/tokenizer.h"

namespace tessera::app {

// All of a file, or of standard input where the name is "-".
std::string read_text_file(const std::string& name);

// "1,2,3", with spaces where one likes.
std::vector<std::int32_t> parse_ids(std::string_view text);

// Where a text begins: the rule of transformers' tokenizer(text). What the post-processor of
// tokenizer.json puts around a text is put around it; tokenizer_config.json may then say
// add_bos_token, true or false, and is obeyed. A text that already begins with the bos token gets
// no second one.
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
