// Runs a test on each SIMD target that was compiled in and that this CPU has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::test {

// Highway's target bits, best first.
std::vector<std::int64_t> simd_targets();
std::string simd_target_name(std::int64_t target);

// Kernels dispatch only to this target while the object lives.
class ForceSimdTarget {
 public:
  explicit ForceSimdTarget(std::int64_t target);
  ~ForceSimdTarget();
  ForceSimdTarget(const ForceSimdTarget&) = delete;
  ForceSimdTarget& operator=(const ForceSimdTarget&) = delete;
};

}  // namespace tessera::test
