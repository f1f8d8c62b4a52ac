// Checks of option values, with errors that say what is accepted: "--threads 5000: must be a whole
// number from 0 to 1024".
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::app {

// More tokens than any stream has: the upper end where there is no other.
inline constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;

CLI::Validator whole_number(std::int64_t least, std::int64_t most = kMostTokens);
CLI::Validator one_of(std::vector<std::string> words);
CLI::Validator not_empty();

// "a, b or c"
std::string list_text(const std::vector<std::string>& words);

}  // namespace tessera::app
