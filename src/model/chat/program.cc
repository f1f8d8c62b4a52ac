#include "model/chat/program.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "core/fail.h"
#include "model/chat/dict.h"
#include "model/chat/evaluator.h"
#include "model/chat/globals.h"
#include "model/chat/json_value.h"
#include "model/checkpoint/quote.h"
#include "model/tokenizer/encode_text.h"
#include "model/tokenizer/unicode.h"

namespace tessera::model::chat {
namespace {

constexpr std::size_t kMostSourceBytes = std::size_t{1} << 20;  // published ones have a few KiB

std::string_view checked_source(std::string_view source) {
  if (source.size() > kMostSourceBytes) {
    fail(ErrorCode::unsupported, "the chat template has {} bytes, at most {} are read",
         source.size(), kMostSourceBytes);
  }
  if (const std::size_t wrong = find_invalid_utf8(source); wrong != std::string_view::npos) {
    fail(ErrorCode::unsupported, "the chat template is not UTF-8: byte {} is 0x{:02X}", wrong,
         static_cast<unsigned char>(source[wrong]));
  }
  return source;
}

std::size_t size_of_input(std::span<const ChatMessage> messages, const ChatOptions& options) {
  std::size_t bytes = options.variables.size();
  for (const ChatMessage& m : messages) bytes += m.role.size() + m.content.size() + m.fields.size();
  return bytes;
}

Text foreign_string(Run& run, std::string_view bytes) {
  check_utf8(bytes);
  TextBuilder builder(run);
  builder.foreign(bytes);
  return builder.take();
}

// A role that models are trained with is the template's own word: templates make tokens of it,
// such as '<|' + role + '|>'.
Text role_text(Run& run, std::string_view role) {
  const auto known = known_roles();
  const bool is_known = std::find(known.begin(), known.end(), role) != known.end();
  return is_known ? own_text(run, role) : foreign_string(run, role);
}

Value message_value(Run& run, const ChatMessage& message) {
  DictBuilder builder(run);
  Value fields;
  if (!message.fields.empty()) {
    fields = value_of_json(run, message.fields, "the fields of a message");
    if (!fields.is<Dict>()) {
      fail(ErrorCode::invalid_argument, "the fields of a message must be a JSON object");
    }
  }
  const auto* dict = fields.as<Dict>();
  const auto given = [&](std::string_view name) {
    return dict != nullptr && (*dict)->find(name) != nullptr;
  };
  if (!given("role")) builder.set(own_text(run, "role"), role_text(run, message.role));
  if (!given("content"))
    builder.set(own_text(run, "content"), foreign_string(run, message.content));
  if (dict != nullptr) {
    for (const auto& [key, value] : (*dict)->entries) {
      const bool is_role = key.as<Text>()->view() == "role" && value.is<Text>();
      builder.set(key, is_role ? Value(role_text(run, value.as<Text>()->view())) : value);
    }
  }
  return builder.take();
}

// The variables by name; their keys do not move while the value lives.
Value variables_of(Run& run, const ChatOptions& options, const Program::Tokens& tokens) {
  if (options.variables.empty()) return DictBuilder(run).take();
  Value variables = value_of_json(run, options.variables, "the variables of the chat");
  if (!variables.is<Dict>()) {
    fail(ErrorCode::invalid_argument, "the variables of the chat must be a JSON object");
  }
  for (const auto& [key, value] : (*variables.as<Dict>())->entries) {
    const std::string_view name = key.as<Text>()->view();
    const bool taken = name == "messages" || name == "add_generation_prompt" ||
                       std::any_of(tokens.begin(), tokens.end(),
                                   [&](const auto& token) { return token.first == name; });
    if (taken) {
      fail(ErrorCode::invalid_argument, "the variables of the chat may not set {}",
           in_quotes(name));
    }
  }
  return variables;
}

}  // namespace

std::span<const std::string_view> known_roles() {
  static constexpr std::array<std::string_view, 10> kRoles = {
      "system", "developer", "user",        "assistant", "model",
      "tool",   "function",  "observation", "ipython",   "environment"};
  return kRoles;
}

Program::Program(std::string_view source) : parsed_(parse_template(checked_source(source))) {}

Rendered Program::render(std::span<const ChatMessage> messages, const ChatOptions& options,
                         const Tokens& tokens) const {
  return render(messages, options, tokens, RunLimits::of_input(size_of_input(messages, options)));
}

Rendered Program::render(std::span<const ChatMessage> messages, const ChatOptions& options,
                         const Tokens& tokens, RunLimits limits) const {
  Run run(limits);
  Owned owned;
  Scope globals;
  add_globals(run, globals, owned, options.unix_time.value_or(std::time(nullptr)));
  globals.set(run, "tools", None{});
  globals.set(run, "documents", None{});
  const Value variables = variables_of(run, options, tokens);
  for (const auto& [key, value] : (*variables.as<Dict>())->entries) {
    globals.set(run, key.as<Text>()->view(), value);
  }
  for (const auto& [name, token] : tokens) globals.set(run, name, own_text(run, token));
  std::vector<Value> all;
  for (const ChatMessage& message : messages) all.push_back(message_value(run, message));
  globals.set(run, "messages", make_list(run, std::move(all)));
  globals.set(run, "add_generation_prompt", options.add_generation_prompt);
  const Text text = Evaluator(run, globals).render(parsed_.body);
  return {std::string(text.view()), text.foreign()};
}

}  // namespace tessera::model::chat
