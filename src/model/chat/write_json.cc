#include <algorithm>
#include <cmath>

#include "model/chat/dict.h"
#include "model/chat/write_value.h"
#include "model/tokenizer/unicode.h"

namespace tessera::model::chat {
namespace {

std::string json_escape(char32_t c) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\f':
      return "\\f";
    case '\b':
      return "\\b";
    default:
      break;
  }
  const auto code = static_cast<std::uint32_t>(c);
  if (code < 0x10000) return fmt::format("\\u{:04x}", code);
  return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10),
                     0xDC00 + ((code - 0x10000) & 0x3FF));
}

class JsonWriter {
 public:
  JsonWriter(Run& run, const JsonStyle& style) : run_(run), style_(style), out_(run) {}

  void write(const Value& value, int level) {
    const Level deeper(run_);
    run_.step();
    if (const auto* text = value.as<Text>()) return write_text(*text);
    if (const auto* list = value.as<List>(); list && (*list)->kind <= ListKind::tuple) {
      return write_list(**list, level);
    }
    if (const auto* dict = value.as<Dict>()) return write_dict(**dict, level);
    if (is_number(value) || value.is<None>()) return out_.own(scalar_text(value));
    if (const auto* undefined = value.as<Undefined>()) run_.refuse("{}", *undefined->reason);
    run_.refuse("a {} cannot be written as JSON", type_name(value));
  }

  Text take() { return out_.take(); }

 private:
  static std::string scalar_text(const Value& value) {
    if (value.is<None>()) return "null";
    if (const auto* truth = value.as<bool>()) return *truth ? "true" : "false";
    if (is_integer(value)) return fmt::format("{}", integer_of(value));
    const double number = number_of(value);
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return float_text(number);
  }

  void write_text(const Text& text) {
    out_.own("\"");
    const std::string_view bytes = text.view();
    std::size_t plain = 0;  // the start of a stretch that needs no escape
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t begin = at;
      const char32_t c = next_code_point(bytes, at);
      const bool escaped = c < 0x20 || c == '"' || c == '\\' || (style_.ensure_ascii && c > 0x7f);
      if (!escaped) continue;
      out_.add(text, plain, begin);
      out_.instead_of(text, begin, at, json_escape(c));
      plain = at;
    }
    out_.add(text, plain, bytes.size());
    out_.own("\"");
  }

  void new_line(int level) {
    if (!style_.indented) return;
    out_.own("\n");
    for (int i = 0; i < level; ++i) out_.add(style_.indent);
  }

  void write_list(const ListData& list, int level) {
    out_.own("[");
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_.add(style_.between_items);
      new_line(level + 1);
      write(list.items[i], level + 1);
    }
    if (!list.items.empty()) new_line(level);
    out_.own("]");
  }

  Text key_text(const Value& key) {
    if (const auto* text = key.as<Text>()) return *text;
    if (is_number(key) || key.is<None>()) return own_text(run_, scalar_text(key));
    run_.refuse("a {} cannot be a key in JSON", type_name(key));
  }

  void write_dict(const DictData& dict, int level) {
    std::vector<std::pair<Text, const Value*>> members;
    for (const auto& [key, value] : dict.entries) members.emplace_back(key_text(key), &value);
    if (style_.sort_keys) {
      run_.step(members.size());
      std::stable_sort(members.begin(), members.end(), [](const auto& a, const auto& b) {
        return a.first.view() < b.first.view();
      });
    }
    out_.own("{");
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (i > 0) out_.add(style_.between_items);
      new_line(level + 1);
      write_text(members[i].first);
      out_.add(style_.after_key);
      write(*members[i].second, level + 1);
    }
    if (!members.empty()) new_line(level);
    out_.own("}");
  }

  Run& run_;
  const JsonStyle& style_;
  TextBuilder out_;
};

}  // namespace

Text to_json(Run& run, const Value& value, const JsonStyle& style) {
  JsonWriter writer(run, style);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace tessera::model::chat
