// Conversations as token ids, written by the model's own chat template. A user's words are always
// text: control tokens come from the template alone.
//
// Threads: a ChatEncoder never changes, and any number may use it at the same time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/prompt.h"

namespace tessera {

// How messages become one text: a program in the part of Jinja that chat templates use, rendered as
// transformers renders it.
struct ChatTemplate {
  std::string name;    // "chatml", or the file of the folder's own: "chat_template.jinja"
  std::string source;  // Jinja
  // The special tokens that the template may name: {"bos_token", "<s>"}.
  std::vector<std::pair<std::string, std::string>> tokens{};
  // The ids begin as those of any prompt do (PromptEncoder::begin). A folder's own template writes
  // its bos token itself.
  bool begins_as_prompt = false;
};

// The built-in templates: chatml, llama3, llama2, mistral, zephyr, plain.
const std::vector<ChatTemplate>& chat_templates();
// The built-in template of this name. Throws with the list of names if there is none.
const ChatTemplate& chat_template(std::string_view name);
// The folder's own: chat_template.jinja, else chat_template of tokenizer_config.json, which is a
// text or a list with an entry named "default". Empty if there is none. The template is not checked
// here; ChatEncoder refuses a wrong one.
std::optional<ChatTemplate> folder_chat_template(const std::filesystem::path& directory);

struct ChatMessage {
  std::string role;     // system, user, assistant, tool, ...: the template says which it takes
  std::string content;  // UTF-8
  // More members as a JSON object, such as {"reasoning_content": "..."}; empty: none. A role or
  // content among them replaces the above.
  std::string fields{};
};

struct ChatOptions {
  // The text ends where the next answer begins.
  bool add_generation_prompt = true;
  // More variables for the template as a JSON object, such as {"enable_thinking": false}; empty:
  // none. They may not have the names messages, add_generation_prompt or that of a special token.
  std::string variables{};
  // The time of strftime_now(), in seconds since 1970; empty: the clock. Shown in local time.
  std::optional<std::int64_t> unix_time{};
};

// Writes conversations as the template says and encodes them. The ids of ordinary words are those
// of the whole text in one piece. In a message or a variable, a control token stays text:
// "hi<|im_end|>" does not end a turn. This holds for every part of a message, whatever the template
// does with it. A role counts as the template's own word if it is one of those that models are
// trained with (system, developer, user, assistant, tool, ...). Markers that are not tokens, such
// as [INST] of llama2, are text in the template too, and look the same in a message.
//
// A template cannot read anything but what it is given, and it cannot run for ever: its steps, its
// depth and its memory are bounded. Exceeding a bound, and anything that the template itself
// refuses (raise_exception), is an Error with the line and column. Messages that are not UTF-8 are
// refused too.
class ChatEncoder {
 public:
  // `prompt` must outlive it. Throws if the template is not in the Jinja that Tessera supports.
  ChatEncoder(const PromptEncoder& prompt, ChatTemplate chat);
  ~ChatEncoder();
  ChatEncoder(ChatEncoder&&) noexcept;
  ChatEncoder& operator=(ChatEncoder&&) noexcept;

  // A conversation as text, and as ids.
  std::string render(std::span<const ChatMessage> messages, const ChatOptions& options = {}) const;
  std::vector<std::int32_t> encode(std::span<const ChatMessage> messages,
                                   const ChatOptions& options = {}) const;

  // For a model that has just written the last assistant message, after reading the messages before
  // it: what it still has to read after its answer and turn_end(). Empty if appending is not
  // possible, because the template now writes earlier turns differently than before (without their
  // thoughts, for example): then let it read encode() from the start.
  std::optional<std::vector<std::int32_t>> encode_after_answer(
      std::span<const ChatMessage> messages, const ChatOptions& options = {}) const;
  // One more turn of an endless chat: what the template writes between an answer with its
  // turn_end() and the next answer, in a conversation without other turns.
  std::vector<std::int32_t> next(std::string_view user, const ChatOptions& options = {}) const;

  // The token that the template writes after an answer; -1: none.
  std::int32_t turn_end() const;
  const ChatTemplate& chat() const;

 private:
  struct State;
  std::unique_ptr<const State> state_;
};

}  // namespace tessera
