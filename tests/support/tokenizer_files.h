// Tokenizers that tests read: small ones of our own, and published ones stored beside the project.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tessera/tokenizer.h"

namespace tessera::test {

// tests/data/tokenizers/NAME.tokenizer.json, or gpt2, gpt-neox (packed with xz) and llama2 of
// shared_path(). Returns nothing if the file or the xz program is missing.
std::optional<Tokenizer> load_tokenizer(const std::string& name);
std::string why_no_tokenizer(const std::string& name);

bool is_utf8(std::string_view text);

// How much longer than usual tests may take in a build with sanitizers.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr double kSlowdown = 20;
#else
inline constexpr double kSlowdown = 1;
#endif

}  // namespace tessera::test
