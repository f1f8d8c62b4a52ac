#include "tessera/sample.h"

#include "core/build_config.h"
#include "core/sample_weight.h"
#include "cpu/sampling/sample.h"
#include "cuda/sampling/sample.h"
#include "ops/op_scope.h"
#include "ops/sampling_table.h"

namespace tessera {
namespace {

void check_sampling_options(const OpScope& op, const SampleArgs& args) {
  for (const SamplingOption& option : sampling_table()) {
    if (!option.is_drawn()) continue;
    const double value = option.value(args);
    op.require(option.accepts(value), "{} is {}; it must be {}", option.name, value,
               option.accepted);
  }
}

void check_sample(const OpScope& op, const SampleArgs& args) {
  const Tensor &logits = args.logits, &ids = args.ids;
  op.input("logits", logits, {DType::f32, DType::f16, DType::bf16});
  op.output("ids", ids, {DType::i32, DType::i64});
  if (logits.rank == 1) {
    op.shape("ids", ids, {1});
  } else {
    bool fits = ids.rank == logits.rank - 1;
    for (int d = 0; fits && d < ids.rank; ++d) fits = ids.shape[d] == logits.shape[d];
    op.require(fits, "ids must have the shape of logits {} without the last dimension, got {}",
               logits, ids);
  }
  const std::int64_t n = logits.size(-1);
  op.require(n > 0 || ids.numel() == 0, "logits {} has rows without elements: no token is possible",
             logits);
  op.require(n <= kMostLogits, "logits has rows of {} elements; at most {} can be sampled from", n,
             kMostLogits);
  check_sampling_options(op, args);
  op.no_overlap("ids", ids, "logits", logits);
}

std::int64_t sample_scratch_bytes(const OpScope& op, Context& ctx, const SampleArgs& args) {
  if (ctx.device().is_cpu()) return 0;
  if constexpr (kHaveCuda) {
    return cuda::sample_scratch_bytes(args);
  } else {
    op.no_kernel();
  }
}

}  // namespace

void sample(Context& ctx, const SampleArgs& args) {
  const OpScope op(ctx, "sample");
  check_sample(op, args);
  if (op.only_counts([&] { return sample_scratch_bytes(op, ctx, args); })) return;
  op.run([&] { return "logits " + to_string(args.logits); },
         [&] {
           cpu::sample(ctx, args);
           return "cpu";
         },
         [&] {
           cuda::sample(ctx, args);
           return "cuda";
         },
         [&] {
           // A difference, a scale, an exponential of a dozen steps, a sum.
           return OpCost{args.logits.bytes() + args.ids.bytes(), 16 * args.logits.numel()};
         });
}

}  // namespace tessera
