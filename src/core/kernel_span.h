// What a GPU was busy with, and when.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

struct KernelSpan {
  static constexpr std::int64_t kNoCall = -1;

  std::string name;                       // of the kernel; empty if it was timed by events
  std::int64_t start_ns = 0, end_ns = 0;  // on the GPU's clock
  // Which op call launched it, counted from 0 since the timer began. Kernels of a captured graph
  // have none: the graph was launched outside of any op.
  std::int64_t call = kNoCall;
};

}  // namespace tessera
