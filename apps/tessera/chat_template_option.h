// --chat-template: a template to use instead of the one in the model's folder.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tessera::app {

// Takes only names that are there; the default is an empty one.
void add_chat_template_option(CLI::App& command, std::string& name);

}  // namespace tessera::app
