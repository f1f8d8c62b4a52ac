// UTF-8 and the few character classes that tokenizers need.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera::model {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

// What the first bytes of a text are.
struct Utf8Scan {
  enum class Kind {
    character,   // `length` bytes are one code point
    invalid,     // `length` bytes cannot begin a code point: one U+FFFD stands for them
    incomplete,  // all bytes begin a code point that the text does not finish
  };
  Kind kind;
  std::size_t length;
};
Utf8Scan scan_utf8(std::string_view bytes);  // not empty

// The offset of the first byte that is not UTF-8; npos if there is none.
std::size_t find_invalid_utf8(std::string_view text);

// The code point at `at`, which then moves past it. The text must be valid.
char32_t next_code_point(std::string_view text, std::size_t& at);
void append_utf8(std::string& to, char32_t code_point);

bool is_white_space(char32_t c);  // the Unicode property White_Space
bool is_number(char32_t c);       // general category N
bool is_mark(char32_t c);         // general category M
bool is_punctuation(char32_t c);  // general category P, and ASCII's $+<=>^`|~
char32_t to_lower(char32_t c);    // the simple mapping

}  // namespace tessera::model
