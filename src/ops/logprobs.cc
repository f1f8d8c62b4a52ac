#include "tessera/logprobs.h"

#include "core/build_config.h"
#include "core/sample_weight.h"
#include "cpu/sampling/logprobs.h"
#include "cuda/sampling/logprobs.h"
#include "ops/op_scope.h"

namespace tessera {
namespace {

void check_top(const OpScope& op, const LogprobsArgs& args, std::int64_t draws) {
  op.require(args.top_ids.defined() == args.top_logprobs.defined(),
             "top_ids and top_logprobs go together: give both, or none");
  if (!args.top_ids.defined()) return;
  const std::int64_t n = args.logits.size(-1);
  op.output("top_ids", args.top_ids, {DType::i32});
  op.output("top_logprobs", args.top_logprobs, {DType::f32});
  op.shape("top_ids", args.top_ids, {draws, -1});
  op.same_shape("top_logprobs", args.top_logprobs, "top_ids", args.top_ids);
  op.require(args.top_ids.size(-1) <= n, "top_ids asks for the {} most likely of {} tokens",
             args.top_ids.size(-1), n);
  op.no_overlap("top_ids", args.top_ids, "logits", args.logits);
  op.no_overlap("top_logprobs", args.top_logprobs, "logits", args.logits);
  op.no_overlap("top_logprobs", args.top_logprobs, "top_ids", args.top_ids);
}

void check_logprobs(const OpScope& op, const LogprobsArgs& args) {
  op.input("logits", args.logits, {DType::f32});
  op.input("rows", args.rows, {DType::i32});
  op.input("ids", args.ids, {DType::i32});
  op.output("logprobs", args.logprobs, {DType::f32});
  op.shape("logits", args.logits, {-1, -1});
  op.shape("rows", args.rows, {-1});
  const std::int64_t draws = args.rows.numel(), n = args.logits.size(-1);
  op.shape("ids", args.ids, {draws});
  op.shape("logprobs", args.logprobs, {draws});
  op.require(draws == 0 || args.logits.numel() > 0, "logits {} is empty: it has no tokens",
             args.logits);
  op.require(n <= kMostLogits, "logits has rows of {} elements; at most {} are taken", n,
             kMostLogits);
  op.no_overlap("logprobs", args.logprobs, "logits", args.logits);
  op.no_overlap("logprobs", args.logprobs, "ids", args.ids);
  check_top(op, args, draws);
}

std::int64_t logprobs_scratch(const OpScope& op, Context& ctx, const LogprobsArgs& args) {
  if (ctx.device().is_cpu()) return 0;
  if constexpr (kHaveCuda) {
    return cuda::logprobs_scratch_bytes(ctx, args);
  } else {
    op.no_kernel();
  }
}

}  // namespace

void logprobs(Context& ctx, const LogprobsArgs& args) {
  const OpScope op(ctx, "logprobs");
  check_logprobs(op, args);
  if (op.only_counts([&] { return logprobs_scratch(op, ctx, args); })) return;
  op.run([&] { return "logits " + to_string(args.logits) + " ids " + to_string(args.ids); },
         [&] {
           cpu::logprobs(ctx, args);
           return "cpu";
         },
         [&] {
           cuda::logprobs(ctx, args);
           return "cuda";
         },
         [&] {
           const std::int64_t elements = args.ids.numel() * args.logits.size(-1);
           return OpCost{elements * size_of(DType::f32), 16 * elements};
         });
}

}  // namespace tessera
