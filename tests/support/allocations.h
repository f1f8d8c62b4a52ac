// Counts heap allocations, for tests of code that must not allocate:
//
//   const AllocationCounter counter;
//   step();
//   EXPECT_EQ(counter.count(), 0);
//
// In a program that links this, operator new is replaced. Under a sanitizer, which has its own,
// nothing is counted.
#pragma once

#include <cstdint>

namespace tessera::test {

// Counts the calls of operator new in all threads, from its construction on. One at a time.
class AllocationCounter {
 public:
  AllocationCounter();
  ~AllocationCounter();
  AllocationCounter(const AllocationCounter&) = delete;
  AllocationCounter& operator=(const AllocationCounter&) = delete;

  std::int64_t count() const;

  // Whether this build counts.
  static bool works();
};

}  // namespace tessera::test
