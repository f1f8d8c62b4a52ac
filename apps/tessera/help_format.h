// The text of --help: plain words, wrapped to the width of the terminal.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

namespace tessera::app {

// Columns to print help in: $COLUMNS, else the terminal's, else 80; at least 40, at most 100.
int help_width();

// Give it to the App before subcommands are added: they take it over.
std::shared_ptr<CLI::FormatterBase> help_formatter();

// Puts every option that `add` adds under a heading of its own.
template <typename Add>
void under_heading(CLI::App& command, const std::string& heading, Add&& add) {
  const std::size_t before = command.get_options().size();
  add();
  const auto options = command.get_options();
  for (std::size_t i = before; i < options.size(); ++i) options[i]->group(heading);
}

}  // namespace tessera::app
