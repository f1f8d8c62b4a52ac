// Chooses the kernel for each sequence of a call.
//
//   few queries    decode.cc    one pass over the cached keys, which are cut into chunks
//   many queries   prefill.cc   query tiles, each with a loop over its key tiles
//
//             keys ->                        keys ->
//   query   | chunk | chunk | ..    queries |tile|tile|    |
//                                           |tile|tile|tile|
//             decode                          prefill
//
// A ragged batch may hold both kinds. The two kernels then run one after the other.
#include "cpu/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/checked.h"
#include "core/thread_pool.h"
#include "core/workspace.h"
#include "cpu/attention/work.h"
#include "cpu/elementwise/rope_table.h"

namespace tessera::cpu {
namespace {

// Up to this many query rows per kv head, decode is faster. Prefill first has to bring the keys
// into its own layout, which pays off when more rows use them. At 16 rows both are equally fast.
constexpr std::int64_t kDecodeRows = 16;

bool is_decode(const AttentionCall& call, const Sequence& s) {
  if (call.args.many_queries) return false;
  return s.n_q == 1 || s.n_q * call.group <= kDecodeRows;
}

void run_prefill(Context& ctx, const AttentionCall& call) {
  const std::int64_t queries = choose_queries_per_tile(call, ctx.threads());
  Workspace::Frame frame(ctx.workspace());
  const std::span<const WorkItem> tiles =
      query_tiles(call, frame, queries, [&](const Sequence& s) { return !is_decode(call, s); });
  attention_prefill(ctx, call, tiles, queries);
}

// The rotation for all key positions of the longest sequence.
KeyRotation key_rotation(Context& ctx, const AttentionArgs& args) {
  std::int64_t positions = 0;
  for (std::int64_t b = 0; b < sequence_count(args); ++b) {
    positions = std::max(positions, sequence_of(args, b).n_k);
  }
  const std::int64_t most =
      args.pages.defined() ? args.pages.table.shape[1] * args.k.shape[1] : positions;
  const Tensor& inv_freq = args.rope_on_read.inv_freq;
  return {rope_table(ctx, inv_freq, positions, most), inv_freq.shape[0], args.rope_on_read.style};
}

}  // namespace

AttentionCall::AttentionCall(const AttentionArgs& call_args)
    : args(call_args),
      heads(args.q.shape[2]),
      kv_heads(args.k.shape[2]),
      group(heads / kv_heads),
      dim(args.q.shape[3]),
      key_tile(kKeyTile),
      strip_rows(kStripRows),
      scale(args.scale != 0 ? args.scale : 1.0f / std::sqrt(static_cast<float>(dim))) {
  constexpr float kLog2e = std::numbers::log2e_v<float>;
  q_factor = args.softcap > 0 ? scale / args.softcap : scale * kLog2e;
  score_factor = args.softcap * kLog2e;
  // Small blocks get tiles of their own size, so that no tile is visited for only a part of it.
  if (args.mask.kind() == Mask::Kind::blocks) {
    const std::int64_t block = args.mask.pattern().block();
    if (block == 16 || block == 32) key_tile = block;
    if (block * group < kStripRows) strip_rows = kStripRows / 2;
  }
}

std::int64_t attention_scratch_bytes(Context& ctx, const AttentionArgs& args) {
  const AttentionCall call(args);
  const std::int64_t n = sequence_count(args), n_q = args.q.shape[1];
  const std::int64_t n_k = args.pages.defined()
                               ? checked_mul(args.pages.table.shape[1], args.k.shape[1])
                               : args.k.shape[1];
  const std::int64_t few = std::clamp<std::int64_t>(kDecodeRows / call.group, 1, n_q);
  std::int64_t most = decode_scratch_bytes(ctx, call, n, few, n_k);
  if (n_q > few || args.many_queries) {
    const std::int64_t largest = choose_queries_per_tile(call, checked_mul(n, n_q), ctx.threads());
    const std::int64_t smallest = choose_queries_per_tile(call, 1, ctx.threads());
    const std::int64_t tiles = checked_mul(n, ceil_div(n_q, smallest));
    most = std::max(most, checked_add(ScratchSize().add<WorkItem>(tiles).bytes(),
                                      prefill_scratch_bytes(ctx, call, largest)));
  }
  return checked_add(ScratchSize().add<std::int64_t>(n).bytes(), most);
}

const char* attention(Context& ctx, const AttentionArgs& args) {
  AttentionCall call(args);
  Workspace::Frame frame(ctx.workspace());
  if (args.rope_on_read.defined()) call.rope = key_rotation(ctx, args);
  const std::int64_t n = sequence_count(args);
  std::int64_t* decoded = frame.take<std::int64_t>(n);
  std::int64_t n_decoded = 0, n_prefilled = 0;
  for (std::int64_t b = 0; b < n; ++b) {
    const Sequence s = sequence_of(args, b);
    if (s.n_q == 0) continue;
    if (is_decode(call, s)) {
      decoded[n_decoded++] = b;
    } else {
      ++n_prefilled;
    }
  }
  if (n_prefilled > 0) run_prefill(ctx, call);
  if (n_decoded > 0) attention_decode(ctx, call, {decoded, decoded + n_decoded});
  if (n_prefilled == 0) return "cpu.decode";
  return n_decoded == 0 ? "cpu.prefill" : "cpu.prefill+decode";
}

}  // namespace tessera::cpu
