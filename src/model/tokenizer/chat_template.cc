// The layouts of chat models, by name. Checkpoints carry a Jinja program for theirs. Only a few
// layouts exist: their markers tell which one it is.
#include <string>

#include "core/fail.h"
#include "model/checkpoint/input_file.h"
#include "model/checkpoint/json.h"
#include "tessera/chat.h"

namespace tessera {
namespace {

std::string chat_template_names() {
  std::string list;
  for (const ChatTemplate& t : chat_templates()) list += (list.empty() ? "" : ", ") + t.name;
  return list;
}

// In bytes; published ones have a few KiB.
constexpr std::int64_t kMaxTemplateConfig = 64 << 20, kMaxTemplate = 16 << 20;

// A member that is a string, or an empty one.
std::string member_text(const model::Json& object, const char* key) {
  const auto member = object.find(key);
  return member != object.end() && member->is_string() ? member->get<std::string>() : "";
}

// The text of the template; empty where there is none.
std::string stored_template(const std::filesystem::path& directory) {
  const std::filesystem::path jinja = directory / "chat_template.jinja";
  if (model::is_named(jinja)) return model::read_small_file(jinja, kMaxTemplate);
  const std::filesystem::path path = directory / "tokenizer_config.json";
  if (!model::is_named(path)) return {};
  const model::Json json = model::read_json_file(path, kMaxTemplateConfig);
  if (!json.is_object() || !json.contains("chat_template")) return {};
  const model::Json& stored = json["chat_template"];
  if (stored.is_string()) return stored.get<std::string>();
  // Several templates, each with a name.
  if (!stored.is_array()) return {};
  for (const model::Json& entry : stored) {
    if (entry.is_object() && member_text(entry, "name") == "default")
      return member_text(entry, "template");
  }
  return {};
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

const ChatTemplate* detect_chat_template(const std::filesystem::path& directory) {
  const std::string text = stored_template(directory);
  if (text.empty()) return nullptr;
  const auto has = [&](const char* marker) { return text.find(marker) != std::string::npos; };
  if (has("<|im_start|>")) return &chat_template("chatml");
  if (has("<|start_header_id|>")) return &chat_template("llama3");
  if (has("[INST]")) return &chat_template(has("<<SYS>>") ? "llama2" : "mistral");
  if (has("<|assistant|>") && (has("eos_token") || has("</s>"))) return &chat_template("zephyr");
  fail(ErrorCode::unsupported,
       "the chat template of {} is not one that Tessera knows ({}); choose one with --template",
       directory.string(), chat_template_names());
}

}  // namespace tessera
