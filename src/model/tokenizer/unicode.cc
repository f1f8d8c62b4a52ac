#include "model/tokenizer/unicode.h"

#include <utf8proc.h>

namespace tessera::model {
namespace {

// What may follow a lead byte: how many bytes, and the range of the first of them (The Unicode
// Standard, table 3-7). Every later one is 0x80..0xBF.
struct Tail {
  std::size_t bytes;
  unsigned char low, high;
};

constexpr Tail tail_of(unsigned char lead) {
  if (lead < 0x80) return {0, 0, 0};
  if (lead >= 0xC2 && lead <= 0xDF) return {1, 0x80, 0xBF};
  if (lead == 0xE0) return {2, 0xA0, 0xBF};
  if (lead == 0xED) return {2, 0x80, 0x9F};
  if (lead >= 0xE1 && lead <= 0xEF) return {2, 0x80, 0xBF};
  if (lead == 0xF0) return {3, 0x90, 0xBF};
  if (lead >= 0xF1 && lead <= 0xF3) return {3, 0x80, 0xBF};
  if (lead == 0xF4) return {3, 0x80, 0x8F};
  return {0, 1, 0};  // no lead byte: an empty range marks it
}

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool within(char32_t c, char32_t low, char32_t high) { return c >= low && c <= high; }

}  // namespace

Utf8Scan scan_utf8(std::string_view bytes) {
  using Kind = Utf8Scan::Kind;
  Tail tail = tail_of(static_cast<unsigned char>(bytes[0]));
  if (tail.low > tail.high) return {Kind::invalid, 1};
  for (std::size_t i = 1; i <= tail.bytes; ++i) {
    if (i == bytes.size()) return {Kind::incomplete, i};
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if (byte < tail.low || byte > tail.high) return {Kind::invalid, i};
    tail.low = 0x80;
    tail.high = 0xBF;
  }
  return {Kind::character, tail.bytes + 1};
}

std::size_t find_invalid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Scan scan = scan_utf8(text.substr(at));
    if (scan.kind != Utf8Scan::Kind::character) return at;
    at += scan.length;
  }
  return std::string_view::npos;
}

char32_t next_code_point(std::string_view text, std::size_t& at) {
  const auto lead = static_cast<unsigned char>(text[at++]);
  if (lead < 0x80) return lead;
  const std::size_t more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
  char32_t c = lead & (0x3Fu >> more);
  for (std::size_t i = 0; i < more; ++i) {
    c = (c << 6) | (static_cast<unsigned char>(text[at++]) & 0x3Fu);
  }
  return c;
}

void append_utf8(std::string& to, char32_t c) {
  const auto continuation = [&](int shift) {
    to.push_back(static_cast<char>(0x80 | ((c >> shift) & 0x3F)));
  };
  if (c < 0x80) {
    to.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    to.push_back(static_cast<char>(0xC0 | (c >> 6)));
    continuation(0);
  } else if (c < 0x10000) {
    to.push_back(static_cast<char>(0xE0 | (c >> 12)));
    continuation(6);
    continuation(0);
  } else {
    to.push_back(static_cast<char>(0xF0 | (c >> 18)));
    continuation(12);
    continuation(6);
    continuation(0);
  }
}

bool is_white_space(char32_t c) {
  return within(c, 0x09, 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         within(c, 0x2000, 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_number(char32_t c) {
  const utf8proc_category_t kind = category(c);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL ||
         kind == UTF8PROC_CATEGORY_NO;
}

bool is_mark(char32_t c) {
  const utf8proc_category_t kind = category(c);
  return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_MC ||
         kind == UTF8PROC_CATEGORY_ME;
}

bool is_punctuation(char32_t c) {
  if (within(c, 0x21, 0x2F) || within(c, 0x3A, 0x40) || within(c, 0x5B, 0x60) ||
      within(c, 0x7B, 0x7E)) {
    return true;
  }
  const utf8proc_category_t kind = category(c);
  return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

char32_t to_lower(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

}  // namespace tessera::model
