// The host memory that this process holds, in one place: any number of buffers, workspaces and
// caches may each fit, but only their sum says whether they fit together.
//
// Threads: any number at the same time.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace tessera {

class MemoryLedger {
 public:
  explicit MemoryLedger(std::int64_t limit) : limit_(limit) {}
  MemoryLedger(const MemoryLedger&) = delete;
  MemoryLedger& operator=(const MemoryLedger&) = delete;

  std::int64_t limit() const { return limit_; }
  std::int64_t held() const { return held_.load(std::memory_order_relaxed); }
  // Below zero if more is mapped than fits.
  std::int64_t free() const { return limit_ - held(); }

  // Counts memory that is about to be allocated. Throws Error (out_of_memory) if it does not fit.
  void take(std::int64_t bytes);
  // Counts memory without a check: pages of mapped files, which the system can drop and read again.
  // What is allocated later has to fit beside them.
  void add(std::int64_t bytes) { held_.fetch_add(bytes, std::memory_order_relaxed); }
  void give_back(std::int64_t bytes) { held_.fetch_sub(bytes, std::memory_order_relaxed); }

 private:
  const std::int64_t limit_;
  std::atomic<std::int64_t> held_{0};
};

// The ledger of this process. Its limit is set at the first call.
MemoryLedger& process_ledger();

// What the machine can still give or what the container grants (0 or less: no limit), whichever is
// smaller, less a reserve for what is not counted: code, tokenizers, lists, the system's own
// tables.
std::int64_t ledger_limit(std::int64_t available, std::int64_t container);

// Mapped memory that is in use, counted until this ends.
class MappedBytes {
 public:
  MappedBytes() = default;
  ~MappedBytes() { process_ledger().give_back(bytes_); }
  MappedBytes(MappedBytes&& other) noexcept : bytes_(std::exchange(other.bytes_, 0)) {}
  MappedBytes& operator=(MappedBytes&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  void add(std::int64_t bytes) {
    process_ledger().add(bytes);
    bytes_ += bytes;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t bytes_ = 0;
};

}  // namespace tessera
