// A kernel of attention_backward() as the host sees it: one row of the table in choose.cc.
//
//   kernel.h       the facts that decide a kernel, and the table
//   choose.cc      the table, and which kernel runs a call
//   choose.h       kernels by name, for tests and benchmarks
//   rows.h, .cu    the values of every query row: its log-sum-exp and rowsum(dO O)
//   portable.cuh   tensor cores of every GPU from sm_80 on: cuda.mma; its tiles and warps beside it
//   hopper/        what only compute capability 9.0 has: cuda.hopper
//
// cuda.plain is in plain/plain_backward.cu.
#pragma once

#include <span>

#include "core/workspace.h"
#include "cuda/attention/call.h"
#include "cuda/attention/kernel.h"
#include "tessera/attention.h"
#include "tessera/context.h"

namespace tessera::cuda {

// A call, and the facts that decide its kernel.
struct BackwardRequest {
  BackwardRequest(const DeviceLimits& gpu, const AttentionBackwardArgs& args);

  AttentionRequest forward;
  HeadRows d_out, d_q, d_k, d_v;
  bool vectors;        // all rows, of gradients too, are aligned, whole 16-byte chunks
  bool deterministic;  // the same bits every time

  const AttentionCall& call() const { return forward.call; }
};

struct BackwardKernel {
  const char* name;
  bool (*takes)(const BackwardRequest& request);
  // Takes its scratch from the frame. The lists of a block pattern are already on the device.
  void (*run)(Context& ctx, const BackwardRequest& request, Workspace::Frame& frame);
};

// All kernels, in the order in which a call is offered to them.
std::span<const BackwardKernel> backward_kernel_table();

// The first kernel that takes the call.
const BackwardKernel& choose_backward(const BackwardRequest& request);
// Copies the lists of a block pattern to the device and runs the kernel.
void run_backward(Context& ctx, const BackwardKernel& kernel, BackwardRequest& request,
                  const Mask& mask);

}  // namespace tessera::cuda
