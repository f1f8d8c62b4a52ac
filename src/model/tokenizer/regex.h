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

// The work that one text may cost: a number of steps for each of its bytes, for all matches
// together. A pattern from a file may look far ahead from every place of a text, or try everything
// in every order. Then the steps run out, and the text is refused while its time is still linear.
class Effort {
 public:
  static constexpr std::size_t kStepsAtStart = 10'000;
  static constexpr std::size_t kStepsPerByte = 100;  // published tokenizers take about five

  Effort();
  ~Effort();
  Effort(Effort&&) noexcept;
  Effort& operator=(Effort&&) noexcept;

  // Call this before searching `bytes`, once for each search.
  void allow(std::size_t bytes) { allowed_ += kStepsPerByte * bytes; }
  // False if that was too much.
  bool spend(std::size_t steps) { return (spent_ += steps) <= allowed_; }
  std::size_t spent() const { return spent_; }

 private:
  friend class Regex;
  struct Memory;  // of PCRE2, kept from match to match
  std::unique_ptr<Memory> memory_;
  std::size_t allowed_ = kStepsAtStart;
  std::size_t spent_ = 0;
};

class Regex {
 public:
  // In PCRE2's dialect, Unicode throughout. `where` names the pattern in errors.
  static Regex pcre(const std::string& pattern, const std::string& where);
  // In Oniguruma's (Ruby's) dialect, which tokenizer.json is written in. Refuses more than
  // kMaxPatternBytes.
  static Regex oniguruma(std::string_view pattern, const std::string& where);

  // Adds all matches, left to right, that do not overlap. The text must be valid UTF-8. An empty
  // match directly after the last match does not count.
  void find_all(std::string_view text, Effort& effort, std::vector<Span>& matches) const;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

// The limit of a Regex, or of a text to search for; published ones have up to some 600.
inline constexpr std::size_t kMaxPatternBytes = 4096;

// The text itself, or a Regex: what "pattern" means in tokenizer.json.
class Pattern {
 public:
  explicit Pattern(std::string literal);  // not empty, at most kMaxPatternBytes
  explicit Pattern(Regex regex);
  void find_all(std::string_view text, Effort& effort, std::vector<Span>& matches) const;
  // In bytes; 0 for a Regex, whose length is not known.
  std::size_t shortest_match() const { return literal_.size(); }

 private:
  std::string literal_;
  std::vector<Regex> regex_;  // one, or none for a literal
};

}  // namespace tessera::model
