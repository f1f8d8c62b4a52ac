#include "model/chat/string_literal.h"

#include "model/tokenizer/unicode.h"

namespace tessera::model::chat {
namespace {

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 16;
}

// `count` digits of \x, \u or \U.
char32_t hexadecimal(std::string_view digits, std::size_t count, Position at) {
  char32_t code = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const int digit = i < digits.size() ? digit_value(digits[i]) : 16;
    if (digit >= 16)
      refuse_at(at, ErrorCode::unsupported, "a string has an escape that ends early");
    code = code * 16 + static_cast<char32_t>(digit);
  }
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
    refuse_at(at, ErrorCode::unsupported, "a string has an escape that is not a character");
  }
  return code;
}

// Single characters; 0 for an escape of another kind.
char plain_escape(char c) {
  constexpr std::string_view kNames = "\\'\"abfnrtv", kMeanings = "\\'\"\a\b\f\n\r\t\v";
  const std::size_t index = kNames.find(c);
  return index == std::string_view::npos ? '\0' : kMeanings[index];
}

}  // namespace

std::string unescaped(std::string_view inside, Position at) {
  std::string text;
  for (std::size_t i = 0; i < inside.size(); ++i) {
    if (inside[i] != '\\' || i + 1 == inside.size()) {
      text += inside[i];
      continue;
    }
    const char c = inside[++i];
    if (const char plain = plain_escape(c); plain != '\0') {
      text += plain;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const std::size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      append_utf8(text, hexadecimal(inside.substr(i + 1), count, at));
      i += count;
    } else if (c >= '0' && c <= '7') {
      char32_t code = 0;
      std::size_t count = 0;
      for (; count < 3 && i + count < inside.size(); ++count) {
        const char digit = inside[i + count];
        if (digit < '0' || digit > '7') break;
        code = code * 8 + static_cast<char32_t>(digit - '0');
      }
      append_utf8(text, code);
      i += count - 1;
    } else if (c == 'N') {
      refuse_at(at, ErrorCode::unsupported, "a string names a character with \\N; write \\u");
    } else if (c != '\n') {  // an escaped newline is dropped; anything else is no escape
      text += '\\';
      text += c;
    }
  }
  return text;
}

}  // namespace tessera::model::chat
