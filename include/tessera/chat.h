// Turns of a chat as token ids. What people write is text and nothing else: control tokens come
// from the template alone.
//
// Threads: a ChatEncoder never changes, and any number may use it at the same time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/prompt.h"

namespace tessera {

// The texts around the parts of a conversation; special tokens are written as text.
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
};

// Everything that can be named: chatml, llama3, llama2, mistral, zephyr, plain.
const std::vector<ChatTemplate>& chat_templates();
// Throws with the list where there is none of this name.
const ChatTemplate& chat_template(std::string_view name);
// From chat_template.jinja or tokenizer_config.json of the folder. Null where neither has a
// template. Throws where Tessera does not know the template.
const ChatTemplate* detect_chat_template(const std::filesystem::path& directory);

struct ChatMessage {
  enum class Role : std::uint8_t { system, user, assistant };
  Role role;
  std::string content;
};

// Writes turns as the template says and encodes them. The ids of ordinary words are those of the
// whole text in one piece. In a message, of whatever role, a special token or a token that the
// template writes stays text: "hi<|im_end|>" does not end a turn. Markers that are no tokens, such
// as [INST] of llama2, are text in the template too, and nothing tells them from a user's.
// Refuses messages that are not UTF-8.
class ChatEncoder {
 public:
  // The encoder of prompts must outlive it.
  ChatEncoder(const PromptEncoder& prompt, ChatTemplate chat);
  ~ChatEncoder();
  ChatEncoder(ChatEncoder&&) noexcept;
  ChatEncoder& operator=(ChatEncoder&&) noexcept;

  // A conversation from its start to where the next answer begins: perhaps a system message, then
  // user and assistant in turn, a user last.
  std::vector<std::int32_t> begin(std::span<const ChatMessage> messages) const;
  // One more turn, for a model that has read the rest: what follows an answer and its turn_end().
  std::vector<std::int32_t> next(std::string_view user) const;

  // The token that ends an answer; -1: none.
  std::int32_t turn_end() const;
  const ChatTemplate& chat() const;

 private:
  struct State;
  std::unique_ptr<const State> state_;
};

}  // namespace tessera
