#include "model/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/fail.h"
#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/unicode.h"

namespace tessera::model {
namespace {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// Canonical or compatibility decomposition of each character, not yet in order.
std::vector<std::int32_t> decompose(std::string_view text, bool compatible) {
  const int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
  std::vector<std::int32_t> points;
  points.reserve(text.size());
  std::array<std::int32_t, 32> parts{};  // the longest decomposition (U+FDFA) has 18
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (c < 0x80) {
      points.push_back(static_cast<std::int32_t>(c));
      continue;
    }
    int boundary = 0;
    const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(),
                                           static_cast<utf8proc_ssize_t>(parts.size()),
                                           static_cast<utf8proc_option_t>(options), &boundary);
    if (n < 0 || n > static_cast<utf8proc_ssize_t>(parts.size())) {
      fail(ErrorCode::unsupported, "U+{:04X} has no Unicode normal form",
           static_cast<std::uint32_t>(c));
    }
    points.insert(points.end(), parts.begin(), parts.begin() + n);
  }
  return points;
}

// Sorts runs of marks by combining class. utf8proc's own sort is quadratic in the length of a run,
// which the text decides.
void order_marks(std::vector<std::int32_t>& points) {
  const auto class_of = [](std::int32_t c) {
    return c < 0x300 ? 0 : utf8proc_get_property(c)->combining_class;
  };
  const auto is_starter = [&](std::int32_t c) { return class_of(c) == 0; };
  for (auto begin = points.begin(); begin != points.end();) {
    begin = std::find_if_not(begin, points.end(), is_starter);
    const auto end = std::find_if(begin, points.end(), is_starter);
    std::stable_sort(begin, end, [&](auto a, auto b) { return class_of(a) < class_of(b); });
    begin = end;
  }
}

std::string normal_form(NormalForm form, std::string text) {
  if (is_ascii(text)) return text;
  std::vector<std::int32_t> points =
      decompose(text, form == NormalForm::nfkc || form == NormalForm::nfkd);
  order_marks(points);
  if (form == NormalForm::nfc || form == NormalForm::nfkc) {
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    const auto n = utf8proc_normalize_utf32(points.data(),
                                            static_cast<utf8proc_ssize_t>(points.size()), options);
    points.resize(static_cast<std::size_t>(std::max<utf8proc_ssize_t>(n, 0)));
  }
  std::string result;
  result.reserve(text.size());
  for (const std::int32_t c : points) append_utf8(result, static_cast<char32_t>(c));
  return result;
}

std::string strip_white_space(StripWhiteSpace step, const std::string& text) {
  std::size_t begin = text.size(), end = 0;  // of the text without outer white space
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    if (is_white_space(next_code_point(text, at))) continue;
    begin = std::min(begin, start);
    end = at;
  }
  if (end == 0) return {};
  if (!step.left) begin = 0;
  if (!step.right) end = text.size();
  return text.substr(begin, end - begin);
}

std::string lowercase(const std::string& text) {
  constexpr char32_t kCapitalIWithDot = 0x130;  // the one letter whose lower case is two
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (c == kCapitalIWithDot) {
      result += "i\u0307";
    } else {
      append_utf8(result, to_lower(c));
    }
  }
  return result;
}

std::string strip_accents(const std::string& text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (!is_mark(c)) append_utf8(result, c);
  }
  return result;
}

struct ApplyNormalizer {
  std::string text;
  Effort& effort;

  std::string operator()(NormalForm form) { return normal_form(form, std::move(text)); }
  std::string operator()(const Prepend& step) { return text.empty() ? text : step.text + text; }
  std::string operator()(const Replace& step) { return replace_all(step, text, effort); }
  std::string operator()(StripWhiteSpace step) { return strip_white_space(step, text); }
  std::string operator()(Lowercase) { return lowercase(text); }
  std::string operator()(StripAccents) { return strip_accents(text); }
  std::string operator()(ByteLevelCharacters) {
    std::string result;
    append_byte_level(result, text);
    return result;
  }
};

}  // namespace

std::string replace_all(const Replace& replace, const std::string& text, Effort& effort) {
  std::vector<Span> matches;
  replace.pattern.find_all(text, effort, matches);
  if (matches.empty()) return text;
  std::string result;
  std::size_t done = 0;
  for (const Span match : matches) {
    result.append(text, done, match.begin - done);
    result += replace.content;
    done = match.end;
  }
  result.append(text, done);
  return result;
}

std::string Normalizer::operator()(std::string text, Effort& effort) const {
  for (const NormalizerStep& step : steps)
    text = std::visit(ApplyNormalizer{std::move(text), effort}, step);
  return text;
}

}  // namespace tessera::model
