// The table of kernels for the gradients of attention, and which of them runs a call.
#include "cuda/attention/backward/choose.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/checked.h"
#include "core/fail.h"
#include "cuda/attention/backward/hopper/hopper.h"
#include "cuda/attention/backward/kernel.h"
#include "cuda/attention/backward/portable.h"
#include "cuda/tile/vectors.h"

namespace tessera::cuda {
namespace {

bool plain_takes(const BackwardRequest&) { return true; }

void run_plain(Context& ctx, const BackwardRequest& request, Workspace::Frame& frame) {
  const AttentionCall& call = request.call();
  const std::int64_t batch = call.q_offsets != nullptr ? 1 : call.sequences;
  const std::int64_t rows = checked_mul(checked_mul(batch, call.n_q), call.heads);
  launch_attention_backward(ctx, call,
                            {.d_out = request.d_out,
                             .d_q = request.d_q,
                             .d_k = request.d_k,
                             .d_v = request.d_v,
                             .delta = frame.take<float>(rows)});
}

// The first kernel that takes a call runs it. The last one takes every call.
constexpr BackwardKernel kBackwardKernels[] = {
    {.name = "cuda.hopper",  // dense batches on compute capability 9.0, in any order of sums
     .takes = backward::hopper_takes,
     .run = backward::run_hopper},
    {.name = "cuda.mma",  // f16 and bf16 by tensor cores, any mask and layout
     .takes = backward::portable_takes,
     .run = backward::run_portable},
    {.name = "cuda.plain",  // any call: f32, and heads wider than 128
     .takes = plain_takes,
     .run = run_plain},
};

bool made_of_vectors(const BackwardRequest& request, const AttentionBackwardArgs& args) {
  const Tensor* gradients[] = {&args.d_out, &args.d_q, &args.d_k, &args.d_v};
  return request.forward.units.vectors &&
         std::all_of(std::begin(gradients), std::end(gradients),
                     [](const Tensor* tensor) { return rows_begin_on_vectors(*tensor); });
}

std::vector<const char*> names_for(const BackwardRequest& request) {
  std::vector<const char*> names;
  for (const BackwardKernel& kernel : kBackwardKernels) {
    if (kernel.takes(request)) names.push_back(kernel.name);
  }
  return names;
}

}  // namespace

BackwardRequest::BackwardRequest(const DeviceLimits& gpu, const AttentionBackwardArgs& args)
    : forward(gpu, args.forward),
      d_out(args.d_out),
      d_q(args.d_q),
      d_k(args.d_k),
      d_v(args.d_v),
      vectors(made_of_vectors(*this, args)),
      deterministic(args.deterministic) {}

std::span<const BackwardKernel> backward_kernel_table() { return kBackwardKernels; }

const BackwardKernel& choose_backward(const BackwardRequest& request) {
  return *std::find_if(std::begin(kBackwardKernels), std::end(kBackwardKernels) - 1,
                       [&](const BackwardKernel& kernel) { return kernel.takes(request); });
}

void attention_backward_by(Context& ctx, std::string_view name, const AttentionBackwardArgs& args) {
  const auto* found =
      std::find_if(std::begin(kBackwardKernels), std::end(kBackwardKernels),
                   [&](const BackwardKernel& kernel) { return kernel.name == name; });
  BackwardRequest request(state_of(ctx).limits(), args);
  if (found == std::end(kBackwardKernels) || !found->takes(request)) {
    fail(ErrorCode::invalid_argument, "the kernel {} cannot run these gradients; {} can", name,
         fmt::join(names_for(request), ", "));
  }
  run_backward(ctx, *found, request, args.forward.mask);
}

std::vector<const char*> backward_kernels(Context& ctx, const AttentionBackwardArgs& args) {
  return names_for(BackwardRequest(state_of(ctx).limits(), args));
}

}  // namespace tessera::cuda
