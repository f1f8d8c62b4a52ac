// From the text of a template to its tree.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/chat/ast.h"

namespace tessera::model::chat {

struct ParsedTemplate {
  Block body;
  // Every text that the template may write by itself: between tags, and in strings.
  std::vector<std::string> literals;
};

// Throws an Error with line and column if the text is not a template, or uses what Tessera does not
// support. The text must be UTF-8.
ParsedTemplate parse_template(std::string_view source);

}  // namespace tessera::model::chat
