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
CLI::Validator number(double least, double most);
CLI::Validator number();  // any that a double holds
CLI::Validator one_of(std::vector<std::string> words);
CLI::Validator not_empty();

// For every option with a name for its value (DIR, FILE, FORMAT, ...): refuses an empty one. It
// comes from a shell variable that is not set, and would be taken for an option that was not given.
void refuse_empty_values(CLI::App& app);

// "a, b or c"
std::string list_text(const std::vector<std::string>& words);

}  // namespace tessera::app
