// Rotates and appends token by token, in one loop: a token's rows are still in the cache when they
// are copied, and both rotations share one table. Steps of few tokens are divided among threads
// too, because their queries, keys and values come from the caches of all threads.
#include "cpu/elementwise/rotary_append.h"

#include "core/thread_pool.h"
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

// One thread's memory: the tables of a position, and the rotated keys of a token.
struct Scratch {
  std::int64_t table_bytes, bytes;

  explicit Scratch(const RotaryAppendArgs& args)
      : table_bytes(rotary_scratch_row(args.rope.inv_freq.shape[0]) *
                    static_cast<std::int64_t>(sizeof(float))),
        bytes(checked_align(
            checked_add(table_bytes, args.k.shape[1] * args.k.shape[2] * size_of(args.k.dtype)),
            Buffer::kAlignment)) {}
};

}  // namespace

std::int64_t rotary_append_scratch_bytes(Context& ctx, const RotaryAppendArgs& args) {
  return ScratchSize().add<char>(checked_mul(ctx.threads(), Scratch(args).bytes)).bytes();
}

void rotary_append(Context& ctx, const RotaryAppendArgs& args) {
  const Scratch scratch(args);
  Workspace::Frame frame(ctx.workspace());
  char* memory = frame.take<char>(checked_mul(ctx.threads(), scratch.bytes));
  const Tensor q = as_batch(args.q), q_out = as_batch(args.q_out), k = as_batch(args.k);
  ctx.pool().parallel_runs(args.q.shape[0], [&](std::int64_t token, int worker) {
    float* tables = reinterpret_cast<float*>(memory + worker * scratch.bytes);
    make_rotary_tables(args.rope, position_at(args.positions, token), tables);
    rotate_token({.x = q, .positions = {}, .rope = args.rope, .out = q_out}, 0, token, tables);
    KvAppendArgs append{.k = args.k,
                        .v = args.v,
                        .slots = args.slots,
                        .k_pages = args.k_pages,
                        .v_pages = args.v_pages,
                        .k_scales = args.k_scales,
                        .v_scales = args.v_scales};
    if (args.rotate_keys) {
      // A token stride of zero: every token's keys are rotated into the same memory.
      char* keys = reinterpret_cast<char*>(tables) + scratch.table_bytes;
      const std::int64_t strides[] = {0, k.shape[3], 1};
      append.k = Tensor(keys, k.dtype, std::span(k.shape).subspan(1, 3), strides, k.device);
      rotate_token({.x = k, .positions = {}, .rope = args.rope, .out = as_batch(append.k)}, 0,
                   token, tables);
    }
    append_token(append, token);
  });
}

}  // namespace tessera::cpu
