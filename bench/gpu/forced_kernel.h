// Until it ends, attention() of this Context uses one kernel; "": its own choice.
#pragma once

#include "cuda/attention/choose.h"
#include "tessera/context.h"

namespace tessera::bench {

class ForcedKernel {
 public:
  ForcedKernel(Context& ctx, const char* kernel) : ctx_(ctx) {
    cuda::force_attention_kernel(ctx_, kernel);
  }
  ~ForcedKernel() { cuda::force_attention_kernel(ctx_, ""); }
  ForcedKernel(const ForcedKernel&) = delete;
  ForcedKernel& operator=(const ForcedKernel&) = delete;

 private:
  Context& ctx_;
};

}  // namespace tessera::bench
