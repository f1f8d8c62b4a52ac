// Runs a test on each SIMD target that was compiled in and that this CPU has.
#pragma once

#include <gtest/gtest.h>

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

// Calls fn() once for each target, with that target forced.
template <typename F>
void on_every_simd_target(F&& fn) {
  for (const std::int64_t target : simd_targets()) {
    SCOPED_TRACE(simd_target_name(target));
    const ForceSimdTarget force(target);
    fn();
  }
}

}  // namespace tessera::test
