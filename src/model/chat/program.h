// A chat template, ready to be rendered.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat/parser.h"
#include "model/tokenizer/regex.h"
#include "tessera/chat.h"

namespace tessera::model::chat {

struct Rendered {
  std::string text;
  std::vector<Span> foreign;  // the parts that came from messages and variables
};

class Program {
 public:
  // Throws an Error with line and column if the text is not a template that Tessera supports.
  explicit Program(std::string_view source);

  using Tokens = std::vector<std::pair<std::string, std::string>>;
  Rendered render(std::span<const ChatMessage> messages, const ChatOptions& options,
                  const Tokens& tokens) const;
  Rendered render(std::span<const ChatMessage> messages, const ChatOptions& options,
                  const Tokens& tokens, RunLimits limits) const;

  // Every text that the template may write by itself.
  const std::vector<std::string>& literals() const { return parsed_.literals; }

 private:
  ParsedTemplate parsed_;
};

// The roles that count as a template's own words.
std::span<const std::string_view> known_roles();

}  // namespace tessera::model::chat
