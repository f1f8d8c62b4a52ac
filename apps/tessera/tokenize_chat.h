// A conversation as a model sees it, for `tessera tokenize --chat`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/tokenizer.h"

namespace tessera::app {

struct ChatTokens {
  std::string text;  // as the template writes it
  std::vector<std::int32_t> ids;
};

// `json` holds the messages, and came from `where`. The template is the folder's own, unless one is
// named.
ChatTokens tokenize_chat(const Tokenizer& tokenizer, const std::filesystem::path& directory,
                         const std::string& template_name, const std::string& json,
                         const std::string& where);

}  // namespace tessera::app
