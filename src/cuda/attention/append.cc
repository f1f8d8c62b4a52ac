#include "cuda/attention/append.h"

#include "core/workspace.h"
#include "cuda/attention/attention.h"
#include "cuda/attention/choose.h"
#include "cuda/attention/hopper/decode/decode.h"
#include "cuda/attention/kernel.h"
#include "cuda/attention/portable/split_and_mma.h"
#include "cuda/rotary/rotary_append.h"
#include "cuda/tile/vectors.h"

namespace tessera::cuda {
namespace {

split::TokenHeads heads_of(const Tensor& tensor) {
  return {tensor.data, tensor.strides[0], tensor.strides[1]};
}

split::NewTokens new_tokens(const AppendAttentionArgs& args) {
  const RotaryAppendArgs& append = args.append;
  return {.q = heads_of(append.q),
          .k = heads_of(append.k),
          .v = heads_of(append.v),
          .positions = append.positions.data,
          .position_dtype = append.positions.dtype,
          .slots = append.slots.ptr<const std::int32_t>(),
          .inv_freq = append.rope.inv_freq.ptr<const float>(),
          .pairs = static_cast<int>(append.rope.inv_freq.shape[0]),
          .half_split = append.rope.style == RopeStyle::half_split,
          .settled = args.settled};
}

// Whether cuda.split runs the call and can append its new tokens: nothing comes between scores and
// softmax, rows are copied in vectors, and a block has room for the rotations of a sequence. Every
// block rotates its own queries. With more blocks than run at a time, a separate kernel that
// rotates once for all of them is faster.
bool is_one_kernel(const AttentionPlan& plan, const RotaryAppendArgs& append) {
  return (plan.kernel == nullptr || plan.kernel->run == split::run) &&
         plan.partials.slots * plan.partials.splits <= split::kBlocksAtOnce &&
         plan.call.mask.kind != Mask::Kind::blocks && is_lean(plan.call) &&
         plan.options.units.vectors && append.rotate_keys &&
         plan.call.n_q * append.rope.inv_freq.shape[0] <= split::kMostRotations &&
         rows_begin_on_vectors(append.k) && rows_begin_on_vectors(append.v);
}

// Where cuda.hopper.decode would run the attention, cuda.split gets the first chance to append the
// tokens. It does so only for few blocks, and then one kernel less is worth more. Only the device
// has the lengths of sequences: a table may have room for many more keys than there are.
AttentionPlan plan_to_append(Context& ctx, const AttentionArgs& args) {
  AttentionPlan chosen = plan_attention(ctx, args);
  if (chosen.kernel->run != hopper_decode::run || is_attention_kernel_forced(ctx)) return chosen;
  return split::plan(AttentionRequest(state_of(ctx).limits(), args));
}

}  // namespace

const char* append_attention(Context& ctx, const AppendAttentionArgs& args) {
  const AttentionPlan plan = plan_to_append(ctx, args.attention);
  if (!is_one_kernel(plan, args.append)) {
    cuda::rotary_append(ctx, args.append);
    return cuda::attention(ctx, args.attention);
  }
  Workspace::Frame frame(ctx.workspace());
  split::run_with_tokens(ctx, plan, new_tokens(args), frame);
  return "cuda.append+split";
}

}  // namespace tessera::cuda
