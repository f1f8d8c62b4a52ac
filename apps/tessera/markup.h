// Words in HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace tessera::app {

// The text as a page shows it, between tags or in a quoted attribute.
std::string escape_markup(std::string_view text);

}  // namespace tessera::app
