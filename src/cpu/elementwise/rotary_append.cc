// The CPU simply calls the two ops in turn: there is no launch to save, and the keys are still in
// the cache when they are copied.
#include "cpu/elementwise/rotary_append.h"

#include <algorithm>

#include "core/workspace.h"
#include "cpu/elementwise/kv_append.h"
#include "cpu/elementwise/rotary.h"

namespace tessera::cpu {
namespace {

// [tokens, heads, dim] as a batch of one.
Tensor as_batch(const Tensor& x) {
  const std::int64_t shape[] = {1, x.shape[0], x.shape[1], x.shape[2]};
  const std::int64_t strides[] = {0, x.strides[0], x.strides[1], x.strides[2]};
  return Tensor(x.data, x.dtype, shape, strides, x.device);
}

RotaryArgs rotary_args(const RotaryAppendArgs& args, const Tensor& x, const Tensor& out) {
  return {.x = as_batch(x), .positions = args.positions, .rope = args.rope, .out = as_batch(out)};
}

}  // namespace

std::int64_t rotary_append_scratch_bytes(Context& ctx, const RotaryAppendArgs& args) {
  const std::int64_t keys = ScratchSize().add<char>(args.k.bytes()).bytes();
  return checked_add(keys,
                     std::max(rotary_scratch_bytes(ctx, rotary_args(args, args.q, args.q_out)),
                              rotary_scratch_bytes(ctx, rotary_args(args, args.k, args.k))));
}

void rotary_append(Context& ctx, const RotaryAppendArgs& args) {
  cpu::rotary(ctx, rotary_args(args, args.q, args.q_out));
  Workspace::Frame frame(ctx.workspace());
  Tensor keys = args.k;
  if (args.turn_keys) {
    keys = frame.take(args.k.dtype, {args.k.shape[0], args.k.shape[1], args.k.shape[2]});
    cpu::rotary(ctx, rotary_args(args, args.k, keys));
  }
  cpu::kv_append(ctx, {.k = keys,
                       .v = args.v,
                       .slots = args.slots,
                       .k_pages = args.k_pages,
                       .v_pages = args.v_pages,
                       .k_scales = args.k_scales,
                       .v_scales = args.v_scales});
}

}  // namespace tessera::cpu
