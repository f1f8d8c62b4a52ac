// Loops that reach the most that a processor can do: the ceilings that kernels are measured
// against. Each runs on one thread; the caller runs one on every thread and measures the time.
#pragma once

#include <cstdint>

namespace tessera::cpu {

// The work of a loop, and a number that depends on all of it, so that no compiler removes it.
struct PeakWork {
  double flops = 0;
  double result = 0;
};

// Fused multiply-adds of f32 on registers. A multiply-add counts as two flops.
PeakWork peak_fma(std::int64_t rounds);
// 8-bit dot products on registers, as packed products with 8-bit activations use them.
PeakWork peak_dot8(std::int64_t rounds);
// Adds up memory in whole vectors: the rate that reading alone can reach.
std::uint64_t sum_memory(const std::uint64_t* from, std::int64_t count);

}  // namespace tessera::cpu
