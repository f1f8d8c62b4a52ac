// What this build contains.
#pragma once

#ifndef TESSERA_HAVE_CUDA
#error "TESSERA_HAVE_CUDA must be 0 or 1: it comes with the CMake target tessera_options"
#endif

namespace tessera {

// An op calls its CUDA kernel under `if constexpr (kHaveCuda)`. A discarded call needs no
// definition, so a build without CUDA links without stubs.
inline constexpr bool kHaveCuda = TESSERA_HAVE_CUDA == 1;

}  // namespace tessera
