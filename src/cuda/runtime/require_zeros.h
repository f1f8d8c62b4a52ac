// A check on the stream, in builds that ask for it (TESSERA_CHECK_COUNTERS), that the next kernel
// finds zeros in the counters. It stands between kernels that would overlap, so benchmarks and the
// usual tests go without: they look once, at the end (check_zeros in state.h).
#pragma once

#include <cstdint>

namespace tessera::cuda {

class State;

// Enqueued. Ends the program, or on a GPU all its work, at a counter that is not zero.
void require_zeros(State& state, const std::int32_t* counters, int count);

}  // namespace tessera::cuda
