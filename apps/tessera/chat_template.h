// How a chat model wants its turns written. Checkpoints carry a Jinja program for it. Only a few
// layouts exist: their markers tell which one it is.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::app {

// Texts around the parts of a conversation; special tokens are written as text.
//
//   system_open  S system_close   user_open U user_close   A   turn_end turn_gap   user_open ...
struct ChatTemplate {
  std::string name;
  std::string system_open, system_close;
  std::string user_open, user_close;  // user_close ends where the answer begins
  std::string turn_end;               // the token that ends an answer; empty: none
  std::string turn_gap;               // between turn_end and the next user_open
  // The system text is part of the first user turn: it follows user_open.
  bool system_in_user = false;

  // What comes before the answer, for one turn.
  std::string turn(std::string_view user, std::string_view system, bool first) const;
};

// Everything that can be named: chatml, llama3, llama2, mistral, zephyr, plain.
const std::vector<ChatTemplate>& chat_templates();
// Throws with the list where there is none of this name.
const ChatTemplate& chat_template(std::string_view name);
// From chat_template.jinja or tokenizer_config.json of the folder. Null where neither has a
// template. Throws where Tessera does not know the template.
const ChatTemplate* detect_chat_template(const std::filesystem::path& directory);

}  // namespace tessera::app
