// Text from a file, fit to be shown inside a sentence.
#pragma once

#include <string>
#include <string_view>

namespace tessera::model {

// A text in quotation marks, cut after some eighty bytes. Control characters, which could drive a
// terminal, and bytes that are not UTF-8 are escaped.
std::string in_quotes(std::string_view text);
// The same without quotation marks, and whole: for a name in a table.
std::string printable(std::string_view text);

}  // namespace tessera::model
