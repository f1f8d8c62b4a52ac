#include "ops/partial_sums.h"

#include <algorithm>
#include <limits>

#include "core/thread_pool.h"
#include "core/type_switch.h"
#include "cpu/attention/merge.h"
#include "cuda/attention/partial_sums.h"
#include "ops/op_scope.h"
#include "tessera/half.h"

namespace tessera {
namespace {

constexpr std::initializer_list<DType> kFloats{DType::f32, DType::f16, DType::bf16};

std::int64_t no_scratch() { return 0; }

// Calls visit(batch, row) for all rows of [batch, rows, heads, dim], on all threads.
template <typename F>
void for_each_token(Context& ctx, const Tensor& tensor, F&& visit) {
  const std::int64_t rows = tensor.size(1);
  ctx.pool().parallel_for(tensor.size(0) * rows,
                          [&](std::int64_t i, int) { visit(i / rows, i % rows); });
}

// Where a head of [batch, rows, heads, dim] begins.
template <typename T>
T* head_row(const Tensor& tensor, std::int64_t b, std::int64_t row, std::int64_t head) {
  return tensor.ptr<T>() + b * tensor.stride(0) + row * tensor.stride(1) + head * tensor.stride(2);
}

void merge_on_cpu(Context& ctx, const PartialSums& sums, std::int64_t first, const Tensor& part,
                  const Tensor& part_lse) {
  const std::int64_t heads = part.size(2), dim = part.size(3);
  for_each_token(ctx, part, [&](std::int64_t b, std::int64_t row) {
    with_float_type(part.dtype, [&](auto type) {
      for (std::int64_t h = 0; h < heads; ++h) {
        const auto* from = head_row<const decltype(type)>(part, b, row, h);
        float* to = head_row<float>(sums.out, b, first + row, h);
        float& lse = sums.lse.ptr<float>()[b * sums.lse.stride(0) + h * sums.lse.stride(1) +
                                           (first + row) * sums.lse.stride(2)];
        const float new_lse =
            part_lse.ptr<const float>()[b * part_lse.stride(0) + h * part_lse.stride(1) +
                                        row * part_lse.stride(2)];
        cpu::merge_attention(to, &lse, from, new_lse, dim);
      }
    });
  });
}

void add_on_cpu(Context& ctx, const Tensor& part, const Tensor& sum) {
  const std::int64_t heads = part.size(2), dim = part.size(3);
  for_each_token(ctx, part, [&](std::int64_t b, std::int64_t row) {
    with_float_type(part.dtype, [&](auto type) {
      for (std::int64_t h = 0; h < heads; ++h) {
        const auto* from = head_row<const decltype(type)>(part, b, row, h);
        float* to = head_row<float>(sum, b, row, h);
        for (std::int64_t d = 0; d < dim; ++d) to[d] += to_float(from[d]);
      }
    });
  });
}

void fill(Context& ctx, const char* name, const Tensor& tensor, float value) {
  const OpScope op(ctx, name);
  op.output("out", tensor, kFloats);
  op.require(tensor.is_contiguous(), "the tensor to fill must be contiguous, got {}", tensor);
  if (op.only_counts(no_scratch)) return;
  op.run([&] { return to_string(tensor); },
         [&] {
           with_float_type(tensor.dtype, [&](auto type) {
             using T = decltype(type);
             std::fill_n(tensor.ptr<T>(), tensor.numel(), from_float<T>(value));
           });
           return "cpu";
         },
         [&] {
           cuda::fill(ctx, tensor, value);
           return "cuda";
         },
         [&] {
           return OpCost{tensor.bytes(), 0};
         });
}

}  // namespace

void clear_partial(Context& ctx, const PartialSums& sums) {
  fill(ctx, "clear_partial", sums.out, 0.f);
  fill(ctx, "clear_partial", sums.lse, -std::numeric_limits<float>::infinity());
}

void fill_zeros(Context& ctx, const Tensor& tensor) { fill(ctx, "fill_zeros", tensor, 0.f); }

void merge_partial(Context& ctx, const PartialSums& sums, std::int64_t first, const Tensor& part,
                   const Tensor& part_lse) {
  const OpScope op(ctx, "merge_partial");
  op.input("part", part, kFloats);
  op.input("part_lse", part_lse, {DType::f32});
  op.output("out", sums.out, {DType::f32});
  op.output("lse", sums.lse, {DType::f32});
  op.shape("part", part, {sums.out.size(0), -1, sums.out.size(2), sums.out.size(3)});
  op.shape("part_lse", part_lse, {part.size(0), part.size(2), part.size(1)});
  op.shape("lse", sums.lse, {sums.out.size(0), sums.out.size(2), sums.out.size(1)});
  op.require(first >= 0 && first + part.size(1) <= sums.out.size(1),
             "rows {} to {} are not among the {} of the sums", first, first + part.size(1),
             sums.out.size(1));
  if (op.only_counts(no_scratch)) return;
  op.run([&] { return "part " + to_string(part) + " out " + to_string(sums.out); },
         [&] {
           merge_on_cpu(ctx, sums, first, part, part_lse);
           return "cpu";
         },
         [&] {
           cuda::merge_partial(ctx, sums.out.slice(1, first, first + part.size(1)),
                               sums.lse.slice(2, first, first + part.size(1)), part, part_lse);
           return "cuda";
         },
         [&] {
           return OpCost{part.bytes() + 8 * part.numel() + 3 * part_lse.bytes(), 3 * part.numel()};
         });
}

void add_partial(Context& ctx, const Tensor& part, const Tensor& sum) {
  const OpScope op(ctx, "add_partial");
  op.input("part", part, kFloats);
  op.output("sum", sum, {DType::f32});
  op.shape("part", part, {-1, -1, -1, -1});
  op.same_shape("sum", sum, "part", part);
  if (op.only_counts(no_scratch)) return;
  op.run([&] { return "part " + to_string(part); },
         [&] {
           add_on_cpu(ctx, part, sum);
           return "cpu";
         },
         [&] {
           cuda::add_partial(ctx, part, sum);
           return "cuda";
         },
         [&] {
           return OpCost{part.bytes() + 8 * part.numel(), part.numel()};
         });
}

}  // namespace tessera
