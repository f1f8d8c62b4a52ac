// An attention kernel as the host sees it: one row of the table in choose.cc.
//
//   args --> AttentionRequest --> AttentionKernel --> AttentionPlan --> scratch, launch
//            what kernels are     the first row       a value on
//            chosen by            that takes it       the stack
//
// A call is chosen once and planned once. Its scratch is counted from the plan and its launch reads
// the same plan, so the two cannot disagree.
#pragma once

#include <cstdint>
#include <span>

#include "core/workspace.h"
#include "cuda/attention/call.h"
#include "cuda/attention/hopper/decode/plan.h"
#include "cuda/attention/hopper/tiles.h"
#include "cuda/attention/portable/tensor_core.h"
#include "cuda/runtime/state.h"
#include "tessera/attention.h"
#include "tessera/context.h"

namespace tessera::cuda {

// A call, and the facts that decide its kernel.
struct AttentionRequest {
  AttentionRequest(const DeviceLimits& gpu, const AttentionArgs& args);

  DeviceLimits gpu;
  AttentionCall call;  // the lists of a block pattern are still on the host
  KeyUnits units;
  bool tensor_cores;  // f16 or bf16, with positions and strides that the portable kernels can count
  bool fixed_splits;  // AttentionArgs::fixed_splits

  // Rows of the largest sequence that share a key head.
  std::int64_t rows() const { return call.n_q * call.group; }
};

struct AttentionKernel;

struct AttentionPlan {
  explicit AttentionPlan(const AttentionRequest& request)
      : call(request.call), options{.units = request.units} {}

  const AttentionKernel* kernel = nullptr;
  AttentionCall call;
  TensorCoreOptions options;       // of cuda.mma, cuda.split and cuda.mma+split
  split::PartialShape partials{};  // of cuda.split and cuda.mma+split
  HopperPlan hopper{};             // of cuda.hopper
  HopperDecodePlan decode{};       // of cuda.hopper.decode
};

struct AttentionKernel {
  const char* name;
  bool (*takes)(const AttentionRequest& request);
  // If this is false the kernel is not chosen, but it can be forced. Null: always true.
  bool (*pays)(const AttentionRequest& request);
  AttentionPlan (*plan)(const AttentionRequest& request);
  // Bytes of the workspace, besides the lists of a block pattern.
  std::int64_t (*scratch)(const AttentionPlan& plan);
  // Takes that scratch from the frame. The lists of a block pattern are already on the device.
  void (*run)(Context& ctx, const AttentionPlan& plan, Workspace::Frame& frame);
};

// All kernels, in the order in which a call is offered to them.
std::span<const AttentionKernel> attention_kernel_table();

// Chooses the kernel of a call and plans it: the first kernel that takes the call, or the one that
// the Context is forced to use (choose.h). Throws if a forced kernel cannot run the call.
AttentionPlan plan_attention(Context& ctx, const AttentionArgs& args);
// The same for such a GPU, with no kernel forced.
AttentionPlan plan_attention(const DeviceLimits& gpu, const AttentionArgs& args);

}  // namespace tessera::cuda
