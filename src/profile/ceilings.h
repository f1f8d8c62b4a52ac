// The most that a device can do: the two ceilings of a roofline, measured at the start of every
// run.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>

#include "tessera/context.h"

namespace tessera::profile {

struct Ceilings {
  double read_bandwidth = 0;  // bytes per second
  double f32_rate = 0;        // flops per second of f32 multiply-adds
  // Of the fastest products: 8-bit dot products on the CPU, f16 on the tensor cores of a GPU.
  double matrix_rate = 0;

  // The rate that bounds a kernel, by its name in the trace.
  double rate_for(std::string_view kernel) const;
  // The least seconds that this work can take: its bytes or its flops, whichever takes longer.
  double floor_seconds(std::int64_t bytes, std::int64_t flops, std::string_view kernel) const;
};

// Far more than any cache holds.
inline constexpr std::int64_t kAllOfMemory = std::int64_t{192} << 20;

// Bytes per second over a block of this size, the fastest of several rounds. A block that a cache
// holds is read from the cache: give the bytes that a step reads, to know what bounds the step. On
// the CPU all threads add up words. A GPU copies one block to another, the fastest operation that
// needs no kernel of ours; bytes read and bytes written both count.
double measure_read_bandwidth(Context& ctx, std::int64_t bytes = kAllOfMemory);
// Takes about half a second.
Ceilings measure_ceilings(Context& ctx, std::int64_t bytes = kAllOfMemory);

// The bandwidths of blocks of several sizes, each measured at its first use: those of the caches,
// which hold small blocks, and that of memory.
class Bandwidths {
 public:
  explicit Bandwidths(Context& ctx) : ctx_(ctx) {}
  // The size is rounded up to a power of two.
  double over(std::int64_t bytes);

 private:
  Context& ctx_;
  std::map<std::int64_t, double> by_size_;
};

}  // namespace tessera::profile
