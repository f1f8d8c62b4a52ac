// tessera demo --kernels.
#pragma once

namespace tessera::app {

// Attention, a 4-bit linear layer and a transformer block, each timed beside the plain way to
// compute the same, and checked against float64. Returns the program's exit status.
int run_kernels_demo(int threads, bool json);

}  // namespace tessera::app
