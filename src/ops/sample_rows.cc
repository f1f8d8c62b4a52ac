#include "tessera/sample_rows.h"

#include "core/build_config.h"
#include "core/sample_weight.h"
#include "cpu/sampling/sample_rows.h"
#include "cuda/sampling/sample.h"
#include "ops/op_scope.h"

namespace tessera {
namespace {

void check_sample_rows(const OpScope& op, const SampleRowsArgs& args) {
  op.input("logits", args.logits, {DType::f32});
  op.input("rows", args.rows, {DType::i32});
  op.input("options", args.options, {DType::i64});
  op.output("ids", args.ids, {DType::i32});
  op.shape("logits", args.logits, {-1, -1});
  op.shape("rows", args.rows, {-1});
  const std::int64_t draws = args.rows.numel(), n = args.logits.size(-1);
  op.shape("options", args.options, {draws, kDrawOptionsWords});
  op.shape("ids", args.ids, {draws});
  op.require(draws == 0 || args.logits.numel() > 0, "logits {} is empty: no token is possible",
             args.logits);
  op.require(n <= kMostLogits, "logits has rows of {} elements; at most {} can be sampled from", n,
             kMostLogits);
  op.no_overlap("ids", args.ids, "logits", args.logits);
  op.no_overlap("ids", args.ids, "rows", args.rows);
  op.no_overlap("ids", args.ids, "options", args.options);
}

std::int64_t sample_rows_scratch(const OpScope& op, Context& ctx, const SampleRowsArgs& args) {
  if (ctx.device().is_cpu()) return 0;
  if constexpr (kHaveCuda) {
    return cuda::sample_scratch_bytes(args);
  } else {
    op.no_kernel();
  }
}

}  // namespace

void sample_rows(Context& ctx, const SampleRowsArgs& args) {
  const OpScope op(ctx, "sample_rows");
  check_sample_rows(op, args);
  if (op.only_counts([&] { return sample_rows_scratch(op, ctx, args); })) return;
  op.run([&] { return "logits " + to_string(args.logits) + " ids " + to_string(args.ids); },
         [&] {
           cpu::sample_rows(ctx, args);
           return "cpu";
         },
         [&] {
           cuda::sample_rows(ctx, args);
           return "cuda";
         },
         [&] {
           const std::int64_t elements = args.ids.numel() * args.logits.size(-1);
           return OpCost{elements * size_of(DType::f32) + args.options.bytes() + args.ids.bytes(),
                         16 * elements};
         });
}

}  // namespace tessera
