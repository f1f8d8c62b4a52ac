#include "support/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TESSERA_COUNTS_ALLOCATIONS 0
#else
#define TESSERA_COUNTS_ALLOCATIONS 1
#endif

namespace {

constinit std::atomic<bool> counting{false};
constinit std::atomic<std::int64_t> allocations{0};

}  // namespace

namespace tessera::test {

AllocationCounter::AllocationCounter() {
  allocations = 0;
  counting = true;
}
AllocationCounter::~AllocationCounter() { counting = false; }
std::int64_t AllocationCounter::count() const { return allocations; }
bool AllocationCounter::works() { return TESSERA_COUNTS_ALLOCATIONS; }

}  // namespace tessera::test

#if TESSERA_COUNTS_ALLOCATIONS

namespace {

void* counted(void* memory) {
  if (counting.load(std::memory_order_relaxed)) ++allocations;
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// The forms for arrays and those that do not throw call these two.
void* operator new(std::size_t size) { return counted(std::malloc(size == 0 ? 1 : size)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  return counted(std::aligned_alloc(unit, (size + unit - 1) / unit * unit));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

#endif
