// Upper and lower case, and kinds of characters, as in Python's strings. A character whose other
// case takes several characters keeps its form, except for the German sharp s.
#pragma once

#include "model/chat/text.h"

namespace tessera::model::chat {

Text upper(Run& run, const Text& text);
Text lower(Run& run, const Text& text);
Text capitalized(Run& run, const Text& text);  // the first character upper case, the others lower
Text title(Run& run, const Text& text);        // str.title(): each word's first letter upper case
// Jinja's filter `title`: words begin after white space and - ( { [ <.
Text title_filtered(Run& run, const Text& text);

bool is_space(char32_t c);  // str.isspace()
bool is_letter(char32_t c);
bool is_digit(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);

}  // namespace tessera::model::chat
