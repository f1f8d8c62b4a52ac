#include <algorithm>
#include <array>
#include <utility>

#include "model/chat/string_literal.h"
#include "model/chat/token.h"
#include "model/checkpoint/quote.h"

namespace tessera::model::chat {
namespace {

constexpr std::string_view kSpaces = " \t\n\r\f\v";

bool is_blank(char c) { return kSpaces.find(c) != std::string_view::npos; }
bool is_decimal(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// \r\n and \r become \n, and the newline at the very end is left out.
std::string with_plain_newlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) data();
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) {
    refuse_at(position(), ErrorCode::unsupported, what);
  }

  // The position of at_, which only moves forward.
  Position position() {
    for (; counted_ < at_; ++counted_) {
      if (source_[counted_] == '\n') {
        ++here_.line;
        here_.column = 1;
      } else if ((static_cast<unsigned char>(source_[counted_]) & 0xC0) != 0x80) {
        ++here_.column;
      }
    }
    return here_;
  }

  void add(TokenKind kind, std::string text) {
    tokens_.push_back({kind, std::move(text), position()});
  }

  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool sees(std::string_view text) const { return rest().starts_with(text); }
  void skip_spaces() {
    while (at_ < source_.size() && is_blank(source_[at_])) ++at_;
  }

  // Text up to the next tag, and what the tag opens.
  void data() {
    std::size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) return add_rest();
      if (std::string_view("{%#").find(source_[tag + 1]) != std::string_view::npos) break;
    }
    const char kind = source_[tag + 1];
    add_data(tag, kind != '{');
    at_ = tag + 2;
    if (sees("-") || sees("+")) ++at_;
    if (kind == '#') return comment();
    if (kind == '%' && raw()) return;
    add(kind == '%' ? TokenKind::block_begin : TokenKind::variable_begin, "");
    expression(kind == '%');
  }

  void add_rest() {
    add(TokenKind::data, source_.substr(at_));
    at_ = source_.size();
  }

  // The text before the tag at `tag`, without the white space that the tag removes.
  void add_data(std::size_t tag, bool takes_indentation) {
    std::string_view text = std::string_view(source_).substr(at_, tag - at_);
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    if (sign == '-') {
      text = text.substr(0, text.find_last_not_of(kSpaces) + 1);
    } else if (sign != '+' && takes_indentation) {
      const std::size_t line = text.rfind('\n') + 1;  // 0 if there is no newline
      const bool at_line_start = line > 0 || at_line_start_;
      if (at_line_start && text.find_first_not_of(kSpaces, line) == std::string_view::npos) {
        text = text.substr(0, line);
      }
    }
    if (!text.empty()) add(TokenKind::data, std::string(text));
  }

  // The end of a block or comment, with the white space that it removes. False if there is none
  // here.
  bool tag_end(std::string_view end, bool takes_newline) {
    const std::size_t before = at_;
    const bool strips = sees("-");
    const bool keeps = sees("+") && takes_newline;
    if (strips || keeps) ++at_;
    if (!sees(end)) {
      at_ = before;
      return false;
    }
    at_ += end.size();
    if (strips) {
      skip_spaces();
    } else if (takes_newline && !keeps && sees("\n")) {
      ++at_;
    }
    at_line_start_ = source_[at_ - 1] == '\n';
    return true;
  }

  void comment() {
    for (; at_ < source_.size(); ++at_) {
      if (tag_end("#}", true)) return;
    }
    refuse("a comment has no end; write #}");
  }

  // {% raw %} ... {% endraw %}. False if it is another block.
  bool raw() {
    const std::size_t before = at_;
    skip_spaces();
    if (sees("raw")) {
      at_ += 3;
      skip_spaces();
      if (!sees("+") && tag_end("%}", false)) {
        raw_text();
        return true;
      }
    }
    at_ = before;
    return false;
  }

  void raw_text() {
    const std::size_t begin = at_;
    const bool begins_line = at_line_start_;
    for (std::size_t tag = source_.find("{%", begin); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      at_ = tag + 2;
      if (sees("-") || sees("+")) ++at_;
      skip_spaces();
      if (!sees("endraw")) continue;
      at_ += 6;
      skip_spaces();
      if (!tag_end("%}", true)) continue;
      const std::size_t behind = std::exchange(at_, begin);
      const bool next_begins_line = std::exchange(at_line_start_, begins_line);
      add_data(tag, true);
      at_ = behind;
      at_line_start_ = next_begins_line;
      return;
    }
    at_ = begin;
    refuse("a raw block has no end; write {% endraw %}");
  }

  // The inside of a tag.
  void expression(bool block) {
    std::string open;  // brackets
    for (;;) {
      skip_spaces();
      if (at_ >= source_.size()) {
        refuse(block ? "a block has no end; write %}" : "an expression has no end; write }}");
      }
      if (open.empty()) {
        const Position here = position();
        if (tag_end(block ? "%}" : "}}", block)) {
          tokens_.push_back({block ? TokenKind::block_end : TokenKind::variable_end, "", here});
          return;
        }
      }
      const char c = source_[at_];
      if (begins_name(c)) {
        name();
      } else if (is_decimal(c)) {
        number();
      } else if (c == '\'' || c == '"') {
        string();
      } else {
        sign(open);
      }
    }
  }

  void name() {
    std::size_t end = at_;
    while (end < source_.size() && (begins_name(source_[end]) || is_decimal(source_[end]))) ++end;
    add(TokenKind::name, source_.substr(at_, end - at_));
    at_ = end;
  }

  // Digits with single underscores between them.
  std::size_t digits_end(std::size_t at) const {
    while (at < source_.size() && (is_decimal(source_[at]) ||
                                   (source_[at] == '_' && at + 1 < source_.size() &&
                                    is_decimal(source_[at + 1]) && is_decimal(source_[at - 1])))) {
      ++at;
    }
    return at;
  }

  void number() {
    if (source_[at_] == '0' && at_ + 1 < source_.size() && begins_name(source_[at_ + 1])) {
      if (source_[at_ + 1] != 'e' && source_[at_ + 1] != 'E') {
        refuse("numbers are written in decimal digits");
      }
    }
    std::size_t end = digits_end(at_);
    TokenKind kind = TokenKind::integer;
    const auto digit_at = [&](std::size_t at) {
      return at < source_.size() && is_decimal(source_[at]);
    };
    // After a point, as in list.0.1, there are whole numbers only.
    const bool may_have_point = at_ == 0 || source_[at_ - 1] != '.';
    if (may_have_point && end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
      kind = TokenKind::number;
      end = digits_end(end + 1);
    }
    if (may_have_point && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const bool has_sign =
          end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-');
      if (digit_at(end + (has_sign ? 2 : 1))) {
        kind = TokenKind::number;
        end = digits_end(end + (has_sign ? 2 : 1));
      }
    }
    std::string digits = source_.substr(at_, end - at_);
    digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
    if (kind == TokenKind::integer && digits.size() > 1 && digits[0] == '0' &&
        digits.find_first_not_of('0') != std::string::npos) {
      refuse("a whole number begins with 0");
    }
    add(kind, std::move(digits));
    at_ = end;
  }

  void string() {
    const char quote = source_[at_];
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) refuse("a string has no end; close its quotes");
    const Position here = position();
    const std::string_view inside = std::string_view(source_).substr(at_ + 1, end - at_ - 1);
    tokens_.push_back({TokenKind::string, unescaped(inside, here), here});
    at_ = end + 1;
  }

  void sign(std::string& open) {
    static constexpr std::array<std::string_view, 26> kSigns = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    const auto* found = std::find_if(kSigns.begin(), kSigns.end(),
                                     [&](std::string_view each) { return sees(each); });
    if (found == kSigns.end()) {
      std::size_t end = at_ + 1;
      while (end < source_.size() && (static_cast<unsigned char>(source_[end]) & 0xC0) == 0x80)
        ++end;
      refuse(in_quotes(source_.substr(at_, end - at_)) + " is not allowed here");
    }
    const char c = (*found)[0];
    if (c == '(' || c == '[' || c == '{') open += c;
    if (c == ')' || c == ']' || c == '}') {
      const char partner = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (open.empty() || open.back() != partner) refuse(fmt::format("'{}' closes nothing", c));
      open.pop_back();
    }
    add(TokenKind::sign, std::string(*found));
    at_ += found->size();
  }

  std::string source_;
  std::size_t at_ = 0, counted_ = 0;
  Position here_{};
  bool at_line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source) {
  return Lexer(with_plain_newlines(source)).run();
}

}  // namespace tessera::model::chat
