// Which chat template a model's folder asks for. Checkpoints carry a Jinja program. Only a few
// layouts exist: their markers tell which one it is.
#pragma once

#include <filesystem>

#include "tessera/chat.h"

namespace tessera::app {

// From chat_template.jinja or tokenizer_config.json of the folder. Null where neither has a
// template. Throws where Tessera does not know the template.
const ChatTemplate* detect_chat_template(const std::filesystem::path& directory);

}  // namespace tessera::app
