// Host memory that a copy engine reads and writes on its own.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "cuda/runtime/owned.h"
#include "tessera/device.h"

namespace tessera::cuda {

struct FreePinned {
  void operator()(char* memory) const noexcept { cudaFreeHost(memory); }
};
using PinnedMemory = std::unique_ptr<char, FreePinned>;

// Throws Error (out_of_memory) if the memory cannot be pinned. `use` begins the sentence: "uploads
// to cuda:0 pass through".
PinnedMemory make_pinned(std::int64_t bytes, Device device, std::string_view use);

// An event that marks the end of a copy and keeps no time, on the current device.
OwnedEvent make_copy_event();

}  // namespace tessera::cuda
