// Patterns of tokenizers, run by PCRE2. Compiled once, then shared: a Regex is a value that is
// cheap to copy and may be used from several threads.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::model {

// Bytes [begin, end) of a text.
struct Span {
  std::size_t begin, end;
};

class Regex {
 public:
  // In PCRE2's dialect, Unicode throughout. `where` names the pattern in errors.
  static Regex pcre(const std::string& pattern, const std::string& where);
  // In Oniguruma's (Ruby's) dialect, which tokenizer.json is written in.
  static Regex oniguruma(std::string_view pattern, const std::string& where);

  // Adds all matches, left to right, that do not overlap. The text must be valid UTF-8. An empty
  // match directly behind the last match does not count.
  void find_all(std::string_view text, std::vector<Span>& matches) const;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

// The text itself, or a Regex: what "pattern" means in tokenizer.json.
class Pattern {
 public:
  explicit Pattern(std::string literal);  // not empty
  explicit Pattern(Regex regex);
  void find_all(std::string_view text, std::vector<Span>& matches) const;
  // In bytes; 0 for a Regex, whose length is not known.
  std::size_t shortest_match() const { return literal_.size(); }

 private:
  std::string literal_;
  std::vector<Regex> regex_;  // one, or none where the literal counts
};

}  // namespace tessera::model
