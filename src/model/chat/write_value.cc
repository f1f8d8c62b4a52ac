#include "model/chat/write_value.h"

#include <utf8proc.h>

#include <array>
#include <charconv>
#include <cmath>

#include "model/chat/dict.h"
#include "model/tokenizer/unicode.h"

namespace tessera::model::chat {
namespace {

// str.isprintable() of one character.
bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

std::string repr_escape(char32_t c) {
  if (c == '\n') return "\\n";
  if (c == '\r') return "\\r";
  if (c == '\t') return "\\t";
  const auto code = static_cast<std::uint32_t>(c);
  if (c < 0x100) return fmt::format("\\x{:02x}", code);
  return c < 0x10000 ? fmt::format("\\u{:04x}", code) : fmt::format("\\U{:08x}", code);
}

// In single quotes, unless it contains single quotes and no double ones.
void repr_text(const Text& text, TextBuilder& out) {
  const std::string_view bytes = text.view();
  const bool has_single = bytes.find('\'') != std::string_view::npos;
  const bool has_double = bytes.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out.own({&quote, 1});
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t begin = at;
    const char32_t c = next_code_point(bytes, at);
    if (c == '\\' || c == static_cast<char32_t>(quote)) {
      out.instead_of(text, begin, at, "\\");
      out.add(text, begin, at);
    } else if (is_printable(c)) {
      out.add(text, begin, at);
    } else {
      out.instead_of(text, begin, at, repr_escape(c));
    }
  }
  out.own({&quote, 1});
}

void repr(Run& run, const Value& value, TextBuilder& out);

void repr_items(Run& run, const std::vector<Value>& items, std::string_view open,
                std::string_view close, TextBuilder& out) {
  out.own(open);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.own(", ");
    repr(run, items[i], out);
  }
  out.own(close);
}

void repr_list(Run& run, const ListData& list, TextBuilder& out) {
  switch (list.kind) {
    case ListKind::list:
      return repr_items(run, list.items, "[", "]", out);
    case ListKind::tuple:
      return repr_items(run, list.items, "(", list.items.size() == 1 ? ",)" : ")", out);
    case ListKind::keys:
      return repr_items(run, list.items, "dict_keys([", "])", out);
    case ListKind::values:
      return repr_items(run, list.items, "dict_values([", "])", out);
    case ListKind::items:
      return repr_items(run, list.items, "dict_items([", "])", out);
    case ListKind::range:
      run.refuse("a range is written as text only after |list");
  }
}

void repr_dict(Run& run, const DictData& dict, TextBuilder& out) {
  out.own("{");
  bool first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!std::exchange(first, false)) out.own(", ");
    repr(run, key, out);
    out.own(": ");
    repr(run, value, out);
  }
  out.own("}");
}

// None, True, 3 and 3.0: the same in str() and repr(). False for any other value.
bool write_scalar(const Value& value, TextBuilder& out) {
  if (value.is<None>()) {
    out.own("None");
  } else if (const auto* truth = value.as<bool>()) {
    out.own(*truth ? "True" : "False");
  } else if (const auto* integer = value.as<std::int64_t>()) {
    out.own(fmt::format("{}", *integer));
  } else if (const auto* number = value.as<double>()) {
    out.own(float_text(*number));
  } else {
    return false;
  }
  return true;
}

void repr(Run& run, const Value& value, TextBuilder& out) {
  const Level level(run);
  run.step();
  if (write_scalar(value, out)) return;
  if (const auto* text = value.as<Text>()) return repr_text(*text, out);
  if (const auto* list = value.as<List>()) return repr_list(run, **list, out);
  if (const auto* dict = value.as<Dict>()) return repr_dict(run, **dict, out);
  if (value.is<Undefined>()) return out.own("Undefined");
  run.refuse("a {} has no text; write what it returns or contains", type_name(value));
}

}  // namespace

std::string float_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  // The fewest digits that give the same number again, as Python places them.
  std::array<char, 64> buffer{};
  const auto scientific = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number,
                                        std::chars_format::scientific);
  std::string text(buffer.data(), scientific.ptr);
  const int exponent = std::stoi(text.substr(text.find('e') + 1));
  if (exponent < -4 || exponent >= 16) return text;
  const auto fixed =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), number, std::chars_format::fixed);
  text.assign(buffer.data(), fixed.ptr);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

Text to_text(Run& run, const Value& value) {
  if (const auto* text = value.as<Text>()) return *text;
  if (value.is<Undefined>()) return {};
  TextBuilder out(run);
  repr(run, value, out);
  return out.take();
}

}  // namespace tessera::model::chat
