// A check on the stream, in builds with TESSERA_CHECK_COUNTERS, that the next kernel finds zeros in
// the counters. It separates kernels that would overlap, so benchmarks and the usual tests run
// without it: they check once, at the end (check_zeros in state.h).
#pragma once

#include <cstdint>

namespace tessera::cuda {

class State;

// Enqueues the check. A counter that is not zero ends the program or, on a GPU, all its work.
void require_zeros(State& state, const std::int32_t* counters, int count);

}  // namespace tessera::cuda
