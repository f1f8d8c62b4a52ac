// Standard output that may fail: a full disk must not look like success.
#pragma once

#include <string_view>

namespace tessera::app {

// Writes the text at once. Throws where it cannot be written.
void write_out(std::string_view text);
// Throws where something that was printed earlier cannot be written.
void flush_out();

}  // namespace tessera::app
