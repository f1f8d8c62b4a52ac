// tessera demo --kernels.
#pragma once

namespace tessera::app {

// Times attention, a 4-bit linear layer and a transformer block beside plain code for the same, and
// checks each against float64. Returns the program's exit status.
int run_kernels_demo(int threads, bool json);

}  // namespace tessera::app
