// The layouts of chat models, by name.
#include <string>

#include "core/fail.h"
#include "tessera/chat.h"

namespace tessera {
namespace {

std::string chat_template_names() {
  std::string list;
  for (const ChatTemplate& t : chat_templates()) list += (list.empty() ? "" : ", ") + t.name;
  return list;
}

}  // namespace

const std::vector<ChatTemplate>& chat_templates() {
  static const std::vector<ChatTemplate> templates = {
      {.name = "chatml",
       .system_open = "<|im_start|>system\n",
       .system_close = "<|im_end|>\n",
       .user_open = "<|im_start|>user\n",
       .user_close = "<|im_end|>\n<|im_start|>assistant\n",
       .turn_end = "<|im_end|>",
       .turn_gap = "\n"},
      {.name = "llama3",
       .system_open = "<|start_header_id|>system<|end_header_id|>\n\n",
       .system_close = "<|eot_id|>",
       .user_open = "<|start_header_id|>user<|end_header_id|>\n\n",
       .user_close = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
       .turn_end = "<|eot_id|>",
       .turn_gap = ""},
      {.name = "llama2",
       .system_open = "<<SYS>>\n",
       .system_close = "\n<</SYS>>\n\n",
       .user_open = "[INST] ",
       .user_close = " [/INST]",
       .turn_end = "</s>",
       .turn_gap = "<s>",
       .system_in_user = true},
      {.name = "mistral",
       .system_open = "",
       .system_close = "\n\n",
       .user_open = "[INST] ",
       .user_close = " [/INST]",
       .turn_end = "</s>",
       .turn_gap = "",
       .system_in_user = true},
      {.name = "zephyr",
       .system_open = "<|system|>\n",
       .system_close = "</s>\n",
       .user_open = "<|user|>\n",
       .user_close = "</s>\n<|assistant|>\n",
       .turn_end = "</s>",
       .turn_gap = "\n"},
      {.name = "plain",
       .system_open = "",
       .system_close = "\n",
       .user_open = "",
       .user_close = "",
       .turn_end = "",
       .turn_gap = "\n"},
  };
  return templates;
}

const ChatTemplate& chat_template(std::string_view name) {
  for (const ChatTemplate& t : chat_templates()) {
    if (t.name == name) return t;
  }
  fail(ErrorCode::invalid_argument, "there is no chat template '{}'; there are {}", name,
       chat_template_names());
}

}  // namespace tessera
