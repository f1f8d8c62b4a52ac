#include "model/tokenizer/oniguruma.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "model/checkpoint/quote.h"
#include "model/tokenizer/unicode.h"

namespace tessera::model {
namespace {

// Oniguruma's \w; PCRE2's own has no marks and one connector only.
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr std::string_view kHexDigits = "0-9A-Fa-f";  // Oniguruma's \h; PCRE2's is a blank
constexpr int kMaxRepeat = 1000;  // StepCount does not count each repetition as a step
// Escapes with the same meaning in both: line ends, controls, anchors, digits, grapheme, line
// break.
constexpr std::string_view kSameEscapes = "nrtfaedDAzZGRX";

constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kLongCategories = {{
    {"letter", "L"},
    {"mark", "M"},
    {"number", "N"},
    {"punctuation", "P"},
    {"symbol", "S"},
    {"separator", "Z"},
    {"other", "C"},
}};
// Properties that are not scripts. PCRE2 has them under the same names.
constexpr std::array<std::string_view, 12> kProperties = {"any",
                                                          "alphabetic",
                                                          "alpha",
                                                          "uppercase",
                                                          "upper",
                                                          "lowercase",
                                                          "lower",
                                                          "whitespace",
                                                          "ideographic",
                                                          "emoji",
                                                          "extendedpictographic",
                                                          "hexdigit"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_hex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where)
      : pattern_(pattern), where_(where) {}

  std::string run() {
    while (!done()) one();
    return std::move(out_);
  }

 private:
  bool done() const { return at_ == pattern_.size(); }
  bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  char peek() const { return done() ? '\0' : pattern_[at_]; }

  [[noreturn]] void refuse(std::string_view what) const {
    fail(ErrorCode::unsupported, "{}: the pattern {} has {} at byte {}, which is not supported",
         where_, in_quotes(pattern_), what, at_);
  }

  void copy(std::size_t bytes) {
    out_ += pattern_.substr(at_, bytes);
    at_ += bytes;
  }

  void one() {
    const char c = peek();
    if (c == '*' || c == '+' || c == '?') return quantifier();
    if (c == '{' && interval()) return;
    if (c == ')') {
      if (groups_.empty()) refuse("a ) without its (");
      copy(1);
      atom_ = groups_.back().begin;
      caseless_ = groups_.back().caseless_outside;
      groups_.pop_back();
      return;
    }
    if (c == '(') return group();
    atom_ = out_.size();
    if (c == '\\') return escape();
    if (c == '[') return character_class();
    if (caseless_) check_folding();
    literal();
  }

  void literal() {
    std::size_t end = at_;
    next_code_point(pattern_, end);
    copy(end - at_);
  }

  // If case is ignored, "ss" matches "ß", and the like, in Oniguruma but not in PCRE2.
  void check_folding() const {
    constexpr std::array<std::string_view, 5> kOneLetterPairs = {"ss", "ff", "fi", "fl", "st"};
    std::string pair;
    for (const char c : pattern_.substr(at_, 2)) {
      pair += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    const bool folds =
        std::find(kOneLetterPairs.begin(), kOneLetterPairs.end(), pair) != kOneLetterPairs.end();
    if (folds || static_cast<unsigned char>(pattern_[at_]) >= 0x80) {
      refuse("letters that fold to others, without regard to case,");
    }
  }

  // Lazy (?) and possessive (+) forms are the same in both.
  void quantifier() {
    copy(1);
    if (peek() == '?' || peek() == '+') copy(1);
  }

  static int count_of(const std::string& digits) { return digits.empty() ? 0 : std::stoi(digits); }

  std::string number() {
    std::string digits;
    while (is_digit(peek())) digits += pattern_[at_++];
    return digits;
  }

  // {n} {n,} {n,m} {,m}; not an interval: false, and nothing was read.
  bool interval() {
    const std::size_t start = at_++;
    const std::string low = number();
    const bool comma = peek() == ',';
    if (comma) ++at_;
    const std::string high = comma ? number() : std::string();
    if (peek() != '}' || (low.empty() && high.empty())) {
      at_ = start;
      return false;
    }
    if (std::max(low.size(), high.size()) > 4 || count_of(low) > kMaxRepeat ||
        count_of(high) > kMaxRepeat) {
      at_ = start;
      refuse(fmt::format("an interval beyond {}", kMaxRepeat));
    }
    ++at_;
    out_ += fmt::format("{{{}{}{}}}", low.empty() ? "0" : low, comma ? "," : "", high);
    // X{n,m}+ repeats the whole, and so does X{n}? as an option: no possessive, no lazy form.
    if (peek() == '+' || (peek() == '?' && !comma)) {
      out_.insert(atom_, "(?:");
      out_ += ')';
      copy(1);
      if (peek() == '{') refuse("an interval of a repeated interval");
    } else if (peek() == '?') {
      copy(1);
    }
    return true;
  }

  void group() {
    if (next_is("(*")) refuse("a verb, \"(*\",");  // PCRE2 obeys them, Oniguruma has none
    groups_.push_back({out_.size(), caseless_});
    if (!next_is("(?")) return copy(1);
    for (const std::string_view same : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"}) {
      if (next_is(same)) return copy(same.size());
    }
    flags();
  }

  // (?i:...), and (?i) at the pattern's start. Oniguruma's m lets the dot match a line end, which
  // PCRE2 calls s.
  void flags() {
    std::size_t end = at_ + 2;
    std::string letters;
    while (end < pattern_.size() &&
           (pattern_[end] == 'i' || pattern_[end] == 'm' || pattern_[end] == '-')) {
      letters += pattern_[end] == 'm' ? 's' : pattern_[end];
      ++end;
    }
    const char last = end < pattern_.size() ? pattern_[end] : '\0';
    if (letters.empty() || (last != ':' && last != ')')) {
      refuse(fmt::format("the group {}", in_quotes(pattern_.substr(at_, end + 1 - at_))));
    }
    caseless_ = letters.substr(0, letters.find('-')).find('i') != std::string::npos ||
                (caseless_ && letters.find('i') == std::string::npos);
    if (last == ')') {
      if (at_ != 0) refuse("flags for the rest of the pattern");
      groups_.pop_back();
    }
    out_ += fmt::format("(?{}{}", letters, last);
    at_ = end + 1;
  }

  void escape() {
    const char c = escaped();
    if (c == 'w') {
      out_ += fmt::format("[{}]", kWord);
    } else if (c == 'W') {
      out_ += fmt::format("[^{}]", kWord);
    } else if (c == 'h') {
      out_ += fmt::format("[{}]", kHexDigits);
    } else if (c == 'H') {
      out_ += fmt::format("[^{}]", kHexDigits);
    } else if (c == 'b') {
      out_ += fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", kWord);
    } else if (c == 'B') {
      out_ += fmt::format("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))", kWord);
    } else {
      return common_escape(c);
    }
    at_ += 2;
  }

  char escaped() const {
    if (at_ + 1 == pattern_.size()) refuse("a lone \\");
    return pattern_[at_ + 1];
  }

  // Escapes that are written alike inside and outside [...].
  void common_escape(char c) {
    if (c == 's' || c == 'S') {  // PCRE2's also has U+180E
      out_ += c == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
      at_ += 2;
    } else if (c == 'v') {  // PCRE2's is a class of line ends
      out_ += "\\x0b";
      at_ += 2;
    } else if (c == 'p' || c == 'P') {
      property();
    } else if (c == 'u' || c == 'x') {
      code_point();
    } else if (kSameEscapes.find(c) != std::string_view::npos) {
      copy(2);
    } else if (is_letter(c) || is_digit(c)) {
      refuse(fmt::format("\\{}", c));
    } else {  // a character that loses its meaning
      if (static_cast<unsigned char>(c) < 0x80) out_ += '\\';
      ++at_;
      literal();
    }
  }

  // \uHHHH, \xHH, \x{H...}
  void code_point() {
    const bool braces = pattern_.substr(at_ + 1).starts_with("x{");
    std::size_t at = at_ + (braces ? 3 : 2);
    const std::size_t most = braces ? 6 : pattern_[at_ + 1] == 'u' ? 4 : 2;
    std::string digits;
    while (at < pattern_.size() && is_hex(pattern_[at]) && digits.size() < most) {
      digits += pattern_[at++];
    }
    if (digits.empty() || (!braces && digits.size() != most) ||
        (braces && (at == pattern_.size() || pattern_[at] != '}'))) {
      refuse("an unfinished code point");
    }
    if (!braces && most == 2 && digits[0] >= '8') refuse("\\x of a byte above 7F");
    at_ = at + (braces ? 1 : 0);
    out_ += fmt::format("\\x{{{}}}", digits);
  }

  // \p{...}: a category, or a script, for which PCRE2 alone would also take script extensions.
  void property() {
    const std::size_t close = pattern_.find('}', at_);
    if (at_ + 2 >= pattern_.size() || pattern_[at_ + 2] != '{' || close == std::string_view::npos) {
      refuse("\\p without {name}");
    }
    std::string_view name = pattern_.substr(at_ + 3, close - at_ - 3);
    const bool negated = name.starts_with('^') != (pattern_[at_ + 1] == 'P');
    if (name.starts_with('^')) name.remove_prefix(1);
    out_ += fmt::format("\\{}{{{}}}", negated ? 'P' : 'p', pcre_property(name));
    at_ = close + 1;
  }

  static std::string pcre_property(std::string_view name) {
    if (name.size() <= 2) return std::string(name);
    std::string plain;
    for (const char c : name) {
      if (c == '_' || c == '-' || c == ' ') continue;
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    for (const auto& [category, letter] : kLongCategories) {
      if (plain == category) return std::string(letter);
    }
    for (const std::string_view property : kProperties) {
      if (plain == property) return plain;
    }
    return "sc:" + plain;
  }

  void character_class() {
    copy(1);
    if (peek() == '^') copy(1);
    if (peek() == ']') refuse("an empty [ ]");
    while (peek() != ']') {
      if (done()) refuse("a [ without its ]");
      if (peek() == '[' || next_is("&&")) refuse("a class inside a class");
      if (peek() == '\\') {
        class_escape();
      } else {
        if (caseless_ && static_cast<unsigned char>(peek()) >= 0x80) check_folding();
        literal();
      }
    }
    copy(1);
  }

  void class_escape() {
    const char c = escaped();
    if (c == 'w' || c == 'h') {
      out_ += c == 'w' ? kWord : kHexDigits;
      at_ += 2;
    } else if (c == 'R' || c == 'X' || c == 'A' || c == 'z' || c == 'Z' || c == 'G') {
      refuse(fmt::format("\\{} in a class", c));
    } else {
      common_escape(c);
    }
  }

  struct Group {
    std::size_t begin;  // in out_
    bool caseless_outside;
  };

  std::string_view pattern_;
  const std::string& where_;
  std::size_t at_ = 0;
  std::string out_;
  std::size_t atom_ = 0;  // where in out_ the thing begins that a quantifier repeats
  bool caseless_ = false;
  std::vector<Group> groups_;  // that are open
};

}  // namespace

std::string pcre_from_oniguruma(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

}  // namespace tessera::model
