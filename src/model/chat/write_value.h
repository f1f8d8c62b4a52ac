// Values as text: str(), repr() and JSON, as Python writes them.
#pragma once

#include <string>

#include "model/chat/value.h"

namespace tessera::model::chat {

// An undefined value gives an empty text. Functions, namespaces and the like have no text.
Text to_text(Run& run, const Value& value);
std::string float_text(double number);

struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false;
  bool indented = false;
  Text indent{};  // of one level
  Text between_items = Text::literal(", "), after_key = Text::literal(": ");
};
// json.dumps().
Text to_json(Run& run, const Value& value, const JsonStyle& style);

}  // namespace tessera::model::chat
