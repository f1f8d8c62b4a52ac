// How much a device can still be asked for, before it is asked.
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

// What can still be allocated on a device that has so much. `held`: what the caller knows to be
// allocated there already; `reusable`: what is allocated, and would be given back for it.
//
// A GPU says what is free, and means it: what is held is gone from that. A little is left to the
// driver. On the CPU free memory is an estimate, and the system makes room by dropping files and by
// swapping: only what exceeds the machine's memory as a whole is out of reach.
AvailableMemory available_memory(Device device, const DeviceMemory& memory, std::int64_t held,
                                 std::int64_t reusable);
// Of a Context, whose workspace may be sized anew.
AvailableMemory available_memory(const Context& ctx, std::int64_t held);

}  // namespace tessera
