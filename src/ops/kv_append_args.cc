#include "ops/kv_append_args.h"

#include <algorithm>
#include <utility>

#include "core/workspace.h"

namespace tessera {

void check_kv_append(const OpScope& op, const KvAppendArgs& args) {
  const Tensor &k = args.k, &v = args.v, &k_pages = args.k_pages, &v_pages = args.v_pages;
  op.input("k", k, {DType::f32, DType::f16, DType::bf16});
  op.require(k.rank == 3, "k must be [tokens, kv_heads, dim], got {}", k);
  op.input("v", v, {k.dtype});
  op.same_shape("v", v, "k", k);
  op.input("slots", args.slots, {DType::i32});
  op.shape("slots", args.slots, {k.shape[0]});
  op.stored_output("k_pages", k_pages, "k", k);
  op.require(k_pages.rank == 4 && k_pages.shape[2] == k.shape[1] && k_pages.shape[3] == k.shape[2],
             "k_pages must be [pages, page_size, {}, {}] for k {}, got {}", k.shape[1], k.shape[2],
             k, k_pages);
  op.output("v_pages", v_pages, {k_pages.dtype});
  op.same_shape("v_pages", v_pages, "k_pages", k_pages);
  op.scales_of("k_pages", k_pages, "k_scales", args.k_scales, /*written=*/true);
  op.scales_of("v_pages", v_pages, "v_scales", args.v_scales, /*written=*/true);
  const std::pair<const char*, const Tensor*> outputs[] = {{"k_pages", &k_pages},
                                                           {"v_pages", &v_pages},
                                                           {"k_scales", &args.k_scales},
                                                           {"v_scales", &args.v_scales}};
  for (const auto& [name, out] : outputs) {
    if (!out->defined()) continue;
    for (const auto& [other_name, other] : outputs) {
      if (out < other) op.no_overlap(name, *out, other_name, *other);
    }
    op.no_overlap(name, *out, "k", k);
    op.no_overlap(name, *out, "v", v);
    op.no_overlap(name, *out, "slots", args.slots);
  }
}

std::int64_t kv_append_bytes(const KvAppendArgs& args) {
  const std::int64_t rows = args.k.shape[0] * args.k.shape[1];
  const std::int64_t scale_bytes = args.k_scales.defined() ? 2 * rows * std::int64_t{4} : 0;
  return 2 * args.k.numel() * (size_of(args.k.dtype) + size_of(args.k_pages.dtype)) + scale_bytes;
}

// Memory for check_kv_slots(), which sorts the slots where it must.
std::int64_t kv_slots_scratch_bytes(Context& ctx, const KvAppendArgs& args) {
  if (!ctx.device().is_cpu()) return 0;
  return ScratchSize().add<std::int32_t>(args.slots.shape[0]).bytes();
}

// If two tokens had the same slot, the last thread to write would win.
void check_kv_slots(const OpScope& op, Context& ctx, const KvAppendArgs& args) {
  const std::int64_t tokens = args.slots.shape[0];
  const std::int64_t pages = args.k_pages.shape[0], page_size = args.k_pages.shape[1];
  const std::int32_t* slots = args.slots.ptr<const std::int32_t>();
  bool rising = true;
  for (std::int64_t i = 0; i < tokens; ++i) {
    op.require(slots[i] >= 0 && slots[i] < pages * page_size,
               "slots[{}] is {}; {} pages of {} tokens have the slots 0..{}", i, slots[i], pages,
               page_size, pages * page_size - 1);
    rising = rising && (i == 0 || slots[i - 1] < slots[i]);
  }
  if (rising) return;
  Workspace::Frame frame(ctx.workspace());
  std::int32_t* sorted = frame.take<std::int32_t>(tokens);
  std::copy(slots, slots + tokens, sorted);
  std::sort(sorted, sorted + tokens);
  const std::int32_t* twice = std::adjacent_find(sorted, sorted + tokens);
  if (twice == sorted + tokens) return;
  op.refuse("slots names {} more than once; each token needs a slot of its own", *twice);
}

}  // namespace tessera
