// The model of commands that name none: the bundled one, which writes stories.
#pragma once

#include <filesystem>

namespace tessera::app {

// The first of these that exists: $TESSERA_DEFAULT_MODEL; share/tessera/models/stories beside the
// program's folder, where `cmake --install` puts it; models/stories of the source tree. Throws
// where none exists, and names these places.
std::filesystem::path default_model_path();

}  // namespace tessera::app
