// Where chat templates come from: a model's folder, or this list.
#include <array>
#include <string>

#include "core/fail.h"
#include "model/checkpoint/input_file.h"
#include "model/checkpoint/json.h"
#include "tessera/chat.h"

namespace tessera {
namespace {

// In bytes; published ones have a few KiB.
constexpr std::int64_t kMaxTemplateConfig = 64 << 20, kMaxTemplate = 16 << 20;

constexpr const char* kChatml = R"({%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor -%}
{{ '<|im_start|>assistant\n' if add_generation_prompt }})";

constexpr const char* kLlama3 = R"({%- for message in messages -%}
{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content + '<|eot_id|>' }}
{%- endfor -%}
{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' if add_generation_prompt }})";

constexpr const char* kZephyr = R"({%- for message in messages -%}
{{ '<|' + message.role + '|>\n' + message.content + '</s>\n' }}
{%- endfor -%}
{{ '<|assistant|>\n' if add_generation_prompt }})";

// An answer continues the text of its user.
constexpr const char* kPlain = R"({%- for message in messages -%}
{{ message.content + ('\n' if message.role != 'user' and not loop.last else '') }}
{%- endfor -%})";

// The system text is part of the first user turn. The two templates differ in what they write
// around it, and after an answer.
std::string instructions(const char* system_open, const char* system_close, const char* gap) {
  std::string source = R"({%- set ns = namespace(system='', turns=0) -%}
{%- for message in messages -%}
{%- if message.role == 'system' and loop.first -%}
{%- set ns.system = 'OPEN' + message.content + 'CLOSE' -%}
{%- elif message.role != ('user' if ns.turns % 2 == 0 else 'assistant') -%}
{{- raise_exception('user and assistant take turns, the user first, after at most one system message') -}}
{%- else -%}
{%- set ns.turns = ns.turns + 1 -%}
{%- if message.role == 'user' -%}
{{ '[INST] ' + ns.system + message.content + ' [/INST]' }}
{%- set ns.system = '' -%}
{%- else -%}
{{ message.content + '</s>' + ('GAP' if not loop.last else '') }}
{%- endif -%}
{%- endif -%}
{%- endfor -%})";
  const std::array<std::pair<std::string, std::string>, 3> parts = {
      {{"OPEN", system_open}, {"CLOSE", system_close}, {"GAP", gap}}};
  for (const auto& [mark, text] : parts) source.replace(source.find(mark), mark.size(), text);
  return source;
}

std::string chat_template_names() {
  std::string list;
  for (const ChatTemplate& t : chat_templates()) list += (list.empty() ? "" : ", ") + t.name;
  return list;
}

// A member that is a string, or an empty one. Tokens may be objects with their text as "content".
std::string member_text(const model::Json& object, const char* key) {
  const auto member = object.find(key);
  if (member == object.end()) return "";
  if (member->is_object() && member->contains("content")) return member_text(*member, "content");
  return member->is_string() ? member->get<std::string>() : "";
}

// "chat_template" of tokenizer_config.json: a text, or several with names.
std::string template_in(const model::Json& config) {
  const auto stored = config.find("chat_template");
  if (stored == config.end() || !stored->is_array()) return member_text(config, "chat_template");
  for (const model::Json& entry : *stored) {
    if (entry.is_object() && member_text(entry, "name") == "default") {
      return member_text(entry, "template");
    }
  }
  return "";
}

// An empty object if there is no such file.
model::Json object_in(const std::filesystem::path& path) {
  if (!model::is_named(path)) return model::Json::object();
  model::Json json = model::read_json_file(path, kMaxTemplateConfig);
  return json.is_object() ? json : model::Json::object();
}

std::vector<std::pair<std::string, std::string>> special_tokens(
    const std::filesystem::path& directory, const model::Json& config) {
  std::vector<std::pair<std::string, std::string>> tokens;
  const model::Json map = object_in(directory / "special_tokens_map.json");
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                           "cls_token", "mask_token"}) {
    std::string text = member_text(config, name);
    // If the first file has the key, even with null, the second one does not count.
    if (!config.contains(name)) text = member_text(map, name);
    if (!text.empty()) tokens.emplace_back(name, std::move(text));
  }
  return tokens;
}

}  // namespace

const std::vector<ChatTemplate>& chat_templates() {
  static const std::vector<ChatTemplate> templates = [] {
    std::vector<ChatTemplate> all = {
        {.name = "chatml", .source = kChatml},
        {.name = "llama3", .source = kLlama3},
        {.name = "llama2", .source = instructions("<<SYS>>\\n", "\\n<</SYS>>\\n\\n", "<s>")},
        {.name = "mistral", .source = instructions("", "\\n\\n", "")},
        {.name = "zephyr", .source = kZephyr},
        {.name = "plain", .source = kPlain},
    };
    for (ChatTemplate& each : all) each.begins_as_prompt = true;
    return all;
  }();
  return templates;
}

const ChatTemplate& chat_template(std::string_view name) {
  for (const ChatTemplate& t : chat_templates()) {
    if (t.name == name) return t;
  }
  fail(ErrorCode::invalid_argument, "there is no chat template '{}'; there are {}", name,
       chat_template_names());
}

std::optional<ChatTemplate> folder_chat_template(const std::filesystem::path& directory) {
  const std::filesystem::path jinja = directory / "chat_template.jinja";
  const model::Json config = object_in(directory / "tokenizer_config.json");
  ChatTemplate found;
  if (model::is_named(jinja)) {
    found = {.name = "chat_template.jinja", .source = model::read_small_file(jinja, kMaxTemplate)};
  } else {
    found = {.name = "tokenizer_config.json", .source = template_in(config)};
  }
  if (found.source.empty()) return std::nullopt;
  found.tokens = special_tokens(directory, config);
  return found;
}

}  // namespace tessera
