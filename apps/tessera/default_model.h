// The model that is used where none is named: a small one that writes stories.
#pragma once

#include <filesystem>

namespace tessera::app {

// The first of these that is there: $TESSERA_DEFAULT_MODEL; share/tessera/models/stories beside the
// folder of the program, where `cmake --install` puts it; models/stories of the source tree. Throws
// with these places where none is.
std::filesystem::path default_model_path();

}  // namespace tessera::app
