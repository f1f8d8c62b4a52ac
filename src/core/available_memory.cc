#include "core/available_memory.h"

#include <algorithm>

#include "core/format.h"
#include "core/memory_ledger.h"
#include "core/size_text.h"

namespace tessera {
namespace {

// For kernels that are loaded when they are first called, the library's own tables, and the
// rounding of blocks to pages of 2 MiB.
constexpr std::int64_t kDriverShare = std::int64_t{64} << 20;

}  // namespace

AvailableMemory available_memory(Device device, const DeviceMemory& memory, std::int64_t held,
                                 std::int64_t reusable) {
  if (device.is_cpu()) {
    return {.bytes = std::max<std::int64_t>(memory.total - held + reusable, 0),
            .text = fmt::format("this process may hold {} of memory and holds {}",
                                size_text(memory.total), size_text(held)),
            .elsewhere = ""};
  }
  return {.bytes = std::max<std::int64_t>(memory.free + reusable - kDriverShare, 0),
          .text = fmt::format("{} has {} of {} free", device, size_text(memory.free),
                              size_text(memory.total)),
          .elsewhere = "--device cpu"};
}

AvailableMemory available_memory(const Context& ctx) {
  return available_memory(ctx.device(), ctx.memory(), process_ledger().held(),
                          ctx.workspace_bytes());
}

}  // namespace tessera
