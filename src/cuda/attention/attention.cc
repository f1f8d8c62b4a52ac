// attention() and attention_backward() on a GPU: choose a kernel, take its scratch and run it.
#include "cuda/attention/attention.h"

#include <algorithm>
#include <span>

#include "core/checked.h"
#include "core/workspace.h"
#include "cuda/attention/backward/kernel.h"
#include "cuda/attention/kernel.h"
#include "cuda/runtime/capture.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/state.h"
#include "tessera/buffer.h"

namespace tessera::cuda {
namespace {

// Copies the lists of a block pattern to scratch, on the stream, by way of pinned memory: the host
// does not wait, and the pattern may be destroyed at once. A captured graph reads the pattern's own
// memory instead, at every launch: the pattern must outlive it.
void move_lists_to_device(Context& ctx, Workspace::Frame& frame, const Mask& mask, MaskView& view) {
  if (mask.kind() != Mask::Kind::blocks) return;
  const BlockMask& pattern = mask.pattern();
  const std::span<const std::byte> lists = pattern.bytes();
  auto* to = frame.take<std::byte>(std::ssize(lists));
  const auto stream = static_cast<cudaStream_t>(ctx.stream());
  if (is_capturing(stream)) {
    const DeviceGuard guard(ctx.device());
    check(cudaMemcpyAsync(to, lists.data(), lists.size_bytes(), cudaMemcpyHostToDevice, stream),
          "attention: copying the mask's lists");
  } else {
    copy_bytes(ctx, to, ctx.device(), lists.data(), Device::cpu(), std::ssize(lists));
  }
  view.offsets = reinterpret_cast<const std::int64_t*>(to);
  view.indices = reinterpret_cast<const std::int32_t*>(view.offsets + pattern.q_blocks() + 1);
  view.longest_first = view.indices + pattern.visited();
}

std::int64_t scratch_of(const AttentionPlan& plan, const Mask& mask) {
  ScratchSize lists;
  if (mask.kind() == Mask::Kind::blocks) lists.add<std::byte>(std::ssize(mask.pattern().bytes()));
  return checked_add(lists.bytes(), plan.kernel->scratch(plan));
}

}  // namespace

// Later steps of a stream may be smaller than the one that is counted. Fewer keys, or fewer queries
// in a ragged batch, take no more scratch. But fewer queries in a dense batch may run on cuda.split
// or cuda.split.run, which take more than the kernels for many queries.
std::int64_t attention_scratch_bytes(Context& ctx, const AttentionArgs& args) {
  const DeviceLimits& gpu = state_of(ctx).limits();
  std::int64_t bytes = scratch_of(plan_attention(gpu, args), args.mask);
  if (args.q_offsets.defined()) return bytes;
  for (std::int64_t queries = std::min(args.q.shape[1], split::kRunQueries); queries > 0;
       --queries) {
    AttentionArgs few = args;
    few.q = args.q.slice(1, 0, queries);
    few.out = args.out.slice(1, 0, queries);
    bytes = std::max(bytes, scratch_of(plan_attention(gpu, few), args.mask));
  }
  return bytes;
}

const char* attention(Context& ctx, const AttentionArgs& args) {
  AttentionPlan plan = plan_attention(ctx, args);
  Workspace::Frame frame(ctx.workspace());
  move_lists_to_device(ctx, frame, args.mask, plan.call.mask);
  plan.kernel->run(ctx, plan, frame);
  return plan.kernel->name;
}

void run_backward(Context& ctx, const BackwardKernel& kernel, BackwardRequest& request,
                  const Mask& mask) {
  Workspace::Frame frame(ctx.workspace());
  move_lists_to_device(ctx, frame, mask, request.forward.call.mask);
  kernel.run(ctx, request, frame);
}

const char* attention_backward(Context& ctx, const AttentionBackwardArgs& args) {
  BackwardRequest request(state_of(ctx).limits(), args);
  const BackwardKernel& kernel = choose_backward(request);
  run_backward(ctx, kernel, request, args.forward.mask);
  return kernel.name;
}

}  // namespace tessera::cuda
