#include "tessera/select.h"

#include <limits>

#include "core/build_config.h"
#include "cpu/sampling/select.h"
#include "cuda/sampling/select.h"
#include "ops/op_scope.h"

namespace tessera {
namespace {

// All dimensions except the last are the same.
bool same_leading(const Tensor& a, const Tensor& b) {
  bool same = a.rank == b.rank;
  for (int d = 0; same && d < a.rank - 1; ++d) same = a.shape[d] == b.shape[d];
  return same;
}

void check_indices_fit(const OpScope& op, const Tensor& indices, std::int64_t n) {
  op.require(indices.dtype == DType::i64 || n <= std::numeric_limits<std::int32_t>::max(),
             "x has rows of {} elements, too long for i32 indices: use i64 indices", n);
}

void check_argmax(const OpScope& op, const ArgmaxArgs& args) {
  const Tensor &x = args.x, &indices = args.indices;
  op.input("x", x, {DType::f32, DType::f16, DType::bf16});
  op.output("indices", indices, {DType::i32, DType::i64});
  if (x.rank == 1) {
    op.shape("indices", indices, {1});
  } else {
    bool fits = indices.rank == x.rank - 1;
    for (int d = 0; fits && d < indices.rank; ++d) fits = indices.shape[d] == x.shape[d];
    op.require(fits, "indices must have the shape of x {} without the last dimension, got {}", x,
               indices);
  }
  op.require(x.size(-1) > 0 || indices.numel() == 0,
             "x {} has empty rows, which have no largest element", x);
  check_indices_fit(op, indices, x.size(-1));
  op.no_overlap("indices", indices, "x", x);
}

void check_top_k(const OpScope& op, const TopKArgs& args) {
  const Tensor &x = args.x, &values = args.values, &indices = args.indices;
  op.input("x", x, {DType::f32, DType::f16, DType::bf16});
  op.output("values", values, {x.dtype});
  op.output("indices", indices, {DType::i32, DType::i64});
  op.require(same_leading(values, x),
             "values must have the shape of x {} with k as the last dimension, got {}", x, values);
  op.require(values.size(-1) <= x.size(-1),
             "values asks for the {} largest of {} elements; k can be at most {}", values.size(-1),
             x.size(-1), x.size(-1));
  op.same_shape("indices", indices, "values", values);
  check_indices_fit(op, indices, x.size(-1));
  op.no_overlap("values", values, "x", x);
  op.no_overlap("indices", indices, "x", x);
  op.no_overlap("indices", indices, "values", values);
}

std::int64_t select_scratch_bytes(const OpScope& op, Context& ctx, const ArgmaxArgs& args) {
  if (ctx.device().is_cpu()) return 0;
  if constexpr (kHaveCuda) {
    return cuda::select_scratch_bytes(ctx, args.x, 1);
  } else {
    op.no_kernel();
  }
}

std::int64_t select_scratch_bytes(const OpScope& op, Context& ctx, const TopKArgs& args) {
  const std::int64_t k = args.values.size(-1);
  if (ctx.device().is_cpu()) return cpu::top_k_scratch_bytes(ctx, k);
  if constexpr (kHaveCuda) {
    return cuda::select_scratch_bytes(ctx, args.x, k);
  } else {
    op.no_kernel();
  }
}

}  // namespace

void argmax(Context& ctx, const ArgmaxArgs& args) {
  const OpScope op(ctx, "argmax");
  check_argmax(op, args);
  if (op.only_counts([&] { return select_scratch_bytes(op, ctx, args); })) return;
  op.run([&] { return "x " + to_string(args.x); },
         [&] {
           cpu::argmax(ctx, args);
           return "cpu";
         },
         [&] {
           cuda::argmax(ctx, args);
           return "cuda";
         },
         [&] {
           return OpCost{args.x.bytes() + args.indices.bytes(), args.x.numel()};
         });
}

void top_k(Context& ctx, const TopKArgs& args) {
  const OpScope op(ctx, "top_k");
  check_top_k(op, args);
  if (op.only_counts([&] { return select_scratch_bytes(op, ctx, args); })) return;
  op.run(
      [&] { return "x " + to_string(args.x) + " k " + std::to_string(args.values.size(-1)); },
      [&] {
        cpu::top_k(ctx, args);
        return "cpu";
      },
      [&] {
        cuda::top_k(ctx, args);
        return "cuda";
      },
      [&] {
        return OpCost{args.x.bytes() + args.values.bytes() + args.indices.bytes(), args.x.numel()};
      });
}

}  // namespace tessera
