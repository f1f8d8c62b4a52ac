#include "model/chat/text_case.h"

#include <utf8proc.h>

#include "model/tokenizer/unicode.h"

namespace tessera::model::chat {
namespace {

enum class Form : std::uint8_t { upper, lower, title };

constexpr char32_t kSharpS = 0xDF;

std::string in_form(char32_t c, Form form) {
  if (c == kSharpS && form != Form::lower) return form == Form::upper ? "SS" : "Ss";
  const auto code = static_cast<utf8proc_int32_t>(c);
  std::string bytes;
  append_utf8(bytes, static_cast<char32_t>(form == Form::upper   ? utf8proc_toupper(code)
                                           : form == Form::lower ? utf8proc_tolower(code)
                                                                 : utf8proc_totitle(code)));
  return bytes;
}

// `form_of` returns the form of each character, in order.
template <typename F>
Text with_forms(Run& run, const Text& text, F&& form_of) {
  TextBuilder out(run);
  const std::string_view bytes = text.view();
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t begin = at;
    const char32_t c = next_code_point(bytes, at);
    out.instead_of(text, begin, at, in_form(c, form_of(c)));
  }
  return out.take();
}

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_cased(char32_t c) {
  return is_upper(c) || is_lower(c) || category(c) == UTF8PROC_CATEGORY_LT;
}

}  // namespace

Text upper(Run& run, const Text& text) {
  return with_forms(run, text, [](char32_t) { return Form::upper; });
}

Text lower(Run& run, const Text& text) {
  return with_forms(run, text, [](char32_t) { return Form::lower; });
}

Text capitalized(Run& run, const Text& text) {
  bool first = true;
  return with_forms(
      run, text, [&](char32_t) { return std::exchange(first, false) ? Form::title : Form::lower; });
}

Text title(Run& run, const Text& text) {
  bool in_word = false;
  return with_forms(run, text, [&](char32_t c) {
    return std::exchange(in_word, is_cased(c)) ? Form::lower : Form::title;
  });
}

Text title_filtered(Run& run, const Text& text) {
  bool in_word = false;
  return with_forms(run, text, [&](char32_t c) {
    const bool separates = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    return std::exchange(in_word, !separates) ? Form::lower : Form::upper;
  });
}

bool is_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }
bool is_letter(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}
bool is_digit(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }
bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL; }

}  // namespace tessera::model::chat
