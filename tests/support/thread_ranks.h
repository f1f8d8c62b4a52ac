// Several ranks as threads of one process, each with a Context of its own on one device, which NCCL
// cannot do with a single GPU. Messages are copied through the host, in the order of the ranks.
#pragma once

#include <memory>

#include "core/function_ref.h"
#include "parallel/control.h"
#include "tessera/communicator.h"
#include "tessera/context.h"

namespace tessera::test {

// What each rank gets.
struct ThreadRank {
  Context& ctx;
  Communicator& ranks;
  parallel::ControlChannel& channel;
};

// Runs `work` on `size` threads and returns when all have ended. A rank that throws, or that
// returns while others wait for it, ends them; the first error is thrown again.
void run_ranks(int size, Device device, FunctionRef<void(const ThreadRank&)> work);

}  // namespace tessera::test
