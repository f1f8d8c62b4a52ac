// While one of these lives, attention() or linear() of a Context uses this kernel; "": the op
// chooses.
#pragma once

#include <string>

#include "cuda/attention/choose.h"
#include "cuda/linear/choose.h"
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

class ForcedLinearKernel {
 public:
  ForcedLinearKernel(Context& ctx, const std::string& kernel) : ctx_(ctx) {
    cuda::force_linear_kernel(ctx_, kernel);
  }
  ~ForcedLinearKernel() { cuda::force_linear_kernel(ctx_, ""); }
  ForcedLinearKernel(const ForcedLinearKernel&) = delete;
  ForcedLinearKernel& operator=(const ForcedLinearKernel&) = delete;

 private:
  Context& ctx_;
};

}  // namespace tessera::bench
