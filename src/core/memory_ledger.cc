#include "core/memory_ledger.h"

#include <algorithm>

#include "core/container_limits.h"
#include "core/fail.h"
#include "core/size_text.h"
#include "tessera/device.h"

namespace tessera {

void MemoryLedger::take(std::int64_t bytes) {
  std::int64_t before = held();
  do {
    if (bytes > limit_ - before) {
      fail(ErrorCode::out_of_memory,
           "{} of memory were requested and {} are free: this process may hold {} and holds {}",
           size_text(bytes), size_text(std::max<std::int64_t>(limit_ - before, 0)),
           size_text(limit_), size_text(before));
    }
  } while (!held_.compare_exchange_weak(before, before + bytes, std::memory_order_relaxed));
}

std::int64_t ledger_limit(std::int64_t available, std::int64_t container) {
  constexpr std::int64_t kLeast = std::int64_t{64} << 20, kMost = std::int64_t{1} << 30;
  const std::int64_t whole = container > 0 ? std::min(available, container) : available;
  const std::int64_t reserve = std::clamp(whole / 16, kLeast, kMost);
  return std::max<std::int64_t>(whole - reserve, 0);
}

MemoryLedger& process_ledger() {
  static MemoryLedger ledger(
      ledger_limit(device_memory(Device::cpu()).free, container_limits().memory.value_or(0)));
  return ledger;
}

DeviceMemory process_memory() {
  const MemoryLedger& ledger = process_ledger();
  return {.free = std::max<std::int64_t>(ledger.free(), 0), .total = ledger.limit()};
}

}  // namespace tessera
