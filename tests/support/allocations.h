// Counts heap allocations, for tests of code that must not allocate:
//
//   const AllocationCounter counter;
//   step();
//   EXPECT_EQ(counter.count(), 0);
//
// A program that links this has its operator new replaced. Under a sanitizer, which brings its own,
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
