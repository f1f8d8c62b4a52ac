// Tessera's version. CMake reads the three numbers from this file: change them here only.
//
// Threads: any.
#pragma once

#define TESSERA_VERSION_MAJOR 0
#define TESSERA_VERSION_MINOR 1
#define TESSERA_VERSION_PATCH 0

namespace tessera {

// "0.1.0"
const char* version();

}  // namespace tessera
