// Tokenizers that tests read: small ones of our own, and published ones stored beside the project.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "support/sanitizers.h"
#include "tessera/tokenizer.h"

namespace tessera::test {

// tests/data/tokenizers/NAME.tokenizer.json, or gpt2, gpt-neox (packed with xz) and llama2 of
// shared_path(). Returns nothing if the file or the xz program is missing.
std::optional<Tokenizer> load_tokenizer(const std::string& name);
std::string why_no_tokenizer(const std::string& name);

bool is_utf8(std::string_view text);

// How much longer than usual tests may take in a build with sanitizers.
inline constexpr double kSlowdown = kSanitized ? 20 : 1;

}  // namespace tessera::test
