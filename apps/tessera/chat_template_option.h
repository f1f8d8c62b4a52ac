// --chat-template: how messages are written, if not as the model's folder says.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tessera::app {

// Takes only names that are there; the default is an empty one.
void add_chat_template_option(CLI::App& command, std::string& name);

}  // namespace tessera::app
