#include "chat_template.h"

#include <algorithm>

#include "core/fail.h"
#include "model/checkpoint/input_file.h"
#include "model/checkpoint/json.h"

namespace tessera::app {
namespace {

// In bytes; published ones have a few KiB.
constexpr std::int64_t kMaxConfig = 64 << 20, kMaxTemplate = 16 << 20;

// A member that is a string, or an empty one.
std::string text_of(const model::Json& object, const char* key) {
  const auto member = object.find(key);
  return member != object.end() && member->is_string() ? member->get<std::string>() : "";
}

// The text of the template; empty where there is none.
std::string stored_template(const std::filesystem::path& directory) {
  const std::filesystem::path jinja = directory / "chat_template.jinja";
  if (model::is_named(jinja)) return model::read_small_file(jinja, kMaxTemplate);
  const std::filesystem::path path = directory / "tokenizer_config.json";
  if (!model::is_named(path)) return {};
  const model::Json json = model::read_json_file(path, kMaxConfig);
  if (!json.is_object() || !json.contains("chat_template")) return {};
  const model::Json& stored = json["chat_template"];
  if (stored.is_string()) return stored.get<std::string>();
  // Several templates, each with a name.
  if (!stored.is_array()) return {};
  for (const model::Json& entry : stored) {
    if (entry.is_object() && text_of(entry, "name") == "default") return text_of(entry, "template");
  }
  return {};
}

std::string names() {
  std::string list;
  for (const ChatTemplate& t : chat_templates()) list += (list.empty() ? "" : ", ") + t.name;
  return list;
}

}  // namespace

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
       directory.string(), names());
}

}  // namespace tessera::app
