// A conversation from a JSON file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/chat.h"

namespace tessera::model::chat {

struct ChatFile {
  std::vector<ChatMessage> messages;
  ChatOptions options;
};

// A list of {"role": ..., "content": ...}, or an object with such a list as "messages", perhaps
// "add_generation_prompt", and more variables for the template. Throws one sentence that begins
// with `where`.
ChatFile parse_chat_file(std::string_view json, const std::string& where);

}  // namespace tessera::model::chat
