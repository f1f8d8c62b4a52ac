// tessera demo --kernels.
#pragma once

namespace tessera::app {

// Times attention, a 4-bit linear layer and a transformer block beside the plain way to compute the
// same, and checks each against float64. Returns the program's exit status.
int run_kernels_demo(int threads, bool json);

}  // namespace tessera::app
