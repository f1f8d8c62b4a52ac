// Text from a file, fit to be shown inside a sentence.
#pragma once

#include <string>
#include <string_view>

namespace tessera::model {

// UTF-8 text in quotation marks: control characters escaped, cut after some eighty bytes.
std::string in_quotes(std::string_view text);

}  // namespace tessera::model
