// A build without NCCL's header.
#include "core/fail.h"
#include "parallel/nccl.h"

namespace tessera::parallel {

NcclInfo nccl_info() { return {false, false, "not in this build (nccl.h was not found)"}; }

std::unique_ptr<Communicator> make_nccl(Context&, Communicator&) {
  fail(ErrorCode::unsupported, "several GPUs need NCCL, which is {}", nccl_info().text);
}

}  // namespace tessera::parallel
