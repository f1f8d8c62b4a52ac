// Communicators on NCCL: one process for each GPU. Calls are enqueued on the Context's stream and
// can be captured in a CUDA graph. NCCL is opened at run time: without it, a program starts and
// runs on one GPU.
#pragma once

#include <memory>
#include <string>

#include "tessera/communicator.h"

namespace tessera::parallel {

// "NCCL 2.28.3", or why there is none.
struct NcclInfo {
  bool built = false, usable = false;
  std::string text;
};
NcclInfo nccl_info();

// A communicator for the Context's GPU. `control` tells the ranks about each other; it has the same
// ranks. Every rank calls this at the same time.
std::unique_ptr<Communicator> make_nccl(Context& ctx, Communicator& control);

}  // namespace tessera::parallel
