// What is wrong with a command line, in one sentence.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tessera::app {

// "there is no command 'genrate'; did you mean 'generate'? ..."
std::string unknown_command(const std::string& word, const std::vector<std::string>& commands);
// The sentence for an error that app.parse() threw.
std::string parse_error(const CLI::App& app, const CLI::ParseError& error);
// What is wrong with the command's own options: "--seed is given more than once".
std::string option_error(const CLI::App& command, const CLI::ParseError& error);

}  // namespace tessera::app
