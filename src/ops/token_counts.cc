#include "tessera/token_counts.h"

#include "cpu/sampling/adjust.h"
#include "cuda/sampling/adjust.h"
#include "ops/op_scope.h"

namespace tessera {
namespace {

void check_fill_counts(const OpScope& op, const FillCountsArgs& args) {
  op.output("counts", args.counts, {DType::i32});
  op.shape("counts", args.counts, {-1, -1});
  const std::int64_t slots = args.counts.size(0);
  op.require(args.slot >= 0 && args.slot < slots, "slot is {}; counts has the slots 0 to {}",
             args.slot, slots - 1);
  if (!args.ids.defined()) {
    op.require(!args.values.defined(), "values were given without ids");
    return;
  }
  op.input("ids", args.ids, {DType::i32});
  op.shape("ids", args.ids, {-1});
  op.no_overlap("counts", args.counts, "ids", args.ids);
  if (!args.values.defined()) return;
  op.input("values", args.values, {DType::i32});
  op.same_shape("values", args.values, "ids", args.ids);
  op.no_overlap("counts", args.counts, "values", args.values);
}

void check_count_tokens(const OpScope& op, const CountTokensArgs& args) {
  op.output("counts", args.counts, {DType::i32});
  op.input("ids", args.ids, {DType::i32});
  op.input("slots", args.slots, {DType::i32});
  op.shape("counts", args.counts, {-1, -1});
  op.shape("ids", args.ids, {-1});
  op.same_shape("slots", args.slots, "ids", args.ids);
  op.no_overlap("counts", args.counts, "ids", args.ids);
  op.no_overlap("counts", args.counts, "slots", args.slots);
}

}  // namespace

void fill_counts(Context& ctx, const FillCountsArgs& args) {
  const OpScope op(ctx, "fill_counts");
  check_fill_counts(op, args);
  if (op.only_counts([] { return 0; })) return;
  op.run([&] { return "counts " + to_string(args.counts); },
         [&] {
           cpu::fill_counts(args);
           return "cpu";
         },
         [&] {
           cuda::fill_counts(ctx, args);
           return "cuda";
         },
         [&] {
           const std::int64_t n = args.counts.size(-1);
           return OpCost{n * size_of(DType::i32), 0};
         });
}

void count_tokens(Context& ctx, const CountTokensArgs& args) {
  const OpScope op(ctx, "count_tokens");
  check_count_tokens(op, args);
  if (op.only_counts([] { return 0; })) return;
  op.run([&] { return "counts " + to_string(args.counts) + " ids " + to_string(args.ids); },
         [&] {
           cpu::count_tokens(args);
           return "cpu";
         },
         [&] {
           cuda::count_tokens(ctx, args);
           return "cuda";
         },
         [&] {
           return OpCost{4 * args.ids.bytes(), args.ids.numel()};  // a count is read and written
         });
}

}  // namespace tessera
