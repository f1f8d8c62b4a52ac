// The escapes of a string literal.
#pragma once

#include <string>
#include <string_view>

#include "model/chat/run.h"

namespace tessera::model::chat {

// The text between the quotes, with \n, \u00e9 and the like as Python reads them.
std::string unescaped(std::string_view inside, Position at);

}  // namespace tessera::model::chat
