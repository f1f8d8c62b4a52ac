// How much memory can still be allocated on a device.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/context.h"
#include "tessera/device.h"

namespace tessera {

struct AvailableMemory {
  std::int64_t bytes = 0;
  std::string text;       // "cuda:0 has 22.10 GiB of 79.11 GiB free"
  std::string elsewhere;  // where else a model could run: "--device cpu"; empty: nowhere
};

// What can still be allocated on a device with this memory. `held`: bytes that the caller knows to
// be allocated there already; `reusable`: allocated bytes that would be released first.
//
// What a GPU reports as free is exact and does not include what is held; a little is left to the
// driver. On the CPU, free memory is an estimate, and the total is what the process may hold: what
// it already holds is subtracted.
AvailableMemory available_memory(Device device, const DeviceMemory& memory, std::int64_t held,
                                 std::int64_t reusable);
// For a Context, whose workspace may be resized. On the CPU, process_ledger() knows what is held.
AvailableMemory available_memory(const Context& ctx);

}  // namespace tessera
