// Names with wildcards, with which a user, a plan or a checkpoint's config selects layers.
#pragma once

#include <cstddef>
#include <string_view>

namespace tessera {

// Whether the whole of `text` matches the pattern, where each * stands for any number of
// characters. Takes at most size x size steps for any pattern.
constexpr bool wildcard_match(std::string_view pattern, std::string_view text) {
  constexpr std::size_t kNone = std::string_view::npos;
  std::size_t p = 0, t = 0;
  std::size_t star = kNone, star_text = 0;  // the last *, and where its match ends so far
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != kNone) {  // the last * takes one character more
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace tessera
