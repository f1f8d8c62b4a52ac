#include "tokenize_chat.h"

#include <optional>

#include "core/fail.h"
#include "model/chat/chat_file.h"
#include "model/checkpoint/input_file.h"
#include "tessera/chat.h"
#include "tessera/model_config.h"
#include "tessera/prompt.h"

namespace tessera::app {

ChatTokens tokenize_chat(const Tokenizer& tokenizer, const std::filesystem::path& directory,
                         const std::string& template_name, const std::string& json,
                         const std::string& where) {
  const auto file = model::chat::parse_chat_file(json, where);
  const std::optional<ChatTemplate> chat = template_name.empty()
                                               ? folder_chat_template(directory)
                                               : std::optional(chat_template(template_name));
  if (!chat) {
    fail(ErrorCode::invalid_argument, "{} has no chat template; choose one with --chat-template",
         directory.string());
  }
  // A tokenizer may stand without a model.
  const bool has_config = model::is_named(directory / "config.json");
  const PromptEncoder prompt(tokenizer, has_config ? read_model_config(directory) : ModelConfig{},
                             directory);
  const ChatEncoder encoder(prompt, *chat);
  return {encoder.render(file.messages, file.options), encoder.encode(file.messages, file.options)};
}

}  // namespace tessera::app
