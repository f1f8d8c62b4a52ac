// Loops that do nothing but what a processor can do at most: the ceilings that kernels are measured
// against. Each runs on one thread; the caller runs one on each, and takes the time.
#pragma once

#include <cstdint>

namespace tessera::cpu {

// What a loop has done, and a number that depends on all of it, so that no compiler leaves it out.
struct PeakWork {
  double flops = 0;
  double result = 0;
};

// Fused multiply-adds of f32 on registers. A multiply-add counts as two flops.
PeakWork peak_fma(std::int64_t rounds);
// 8-bit dot products on registers: what packed products with 8-bit activations use.
PeakWork peak_dot8(std::int64_t rounds);
// Adds up memory in whole vectors: what reading alone can reach.
std::uint64_t sum_memory(const std::uint64_t* from, std::int64_t count);

}  // namespace tessera::cpu
