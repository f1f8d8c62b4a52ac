// From the command line to the ids that a model reads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/prompt.h"

namespace tessera::app {

// All of a regular file of at most 1 GiB; "-" is standard input, which may be a pipe.
std::string read_text_file(const std::string& name);

// "1,2,3", with or without spaces. Of --prompt-ids: errors name it.
std::vector<std::int32_t> parse_ids(std::string_view text);

}  // namespace tessera::app
