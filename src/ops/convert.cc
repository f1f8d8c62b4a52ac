#include "tessera/convert.h"

#include "core/rows.h"
#include "core/type_switch.h"
#include "cpu/elementwise/for_each_row.h"
#include "cuda/quant/dequantize.h"
#include "ops/op_scope.h"

namespace tessera {
namespace {

void convert_on_cpu(Context& ctx, const Tensor& x, const Tensor& out) {
  const Rows from(x), to(out);
  with_float_type(x.dtype, [&](auto x_type) {
    with_float_type(out.dtype, [&](auto out_type) {
      using X = decltype(x_type);
      using Out = decltype(out_type);
      cpu::for_each_row(ctx.pool(), from.rows(), from.cols(), [&](std::int64_t row, int) {
        const X* in = from.row<const X>(row);
        Out* result = to.row<Out>(row);
        for (std::int64_t i = 0; i < from.cols(); ++i) {
          result[i] = from_float<Out>(to_float(in[i]));
        }
      });
    });
  });
}

// Uses dequantize(), which converts a dense matrix. A contiguous tensor is treated as a matrix
// whose rows divide the work well, and a remainder. Other tensors are cut into matrices.
void convert_on_cuda(Context& ctx, const Tensor& x, const Tensor& out) {
  constexpr std::int64_t kRow = 2048;
  const std::int64_t count = x.numel(), whole = count / kRow * kRow;
  if (count == 0) return;
  if (x.is_contiguous() && out.is_contiguous()) {
    const auto part = [&](std::int64_t begin, std::int64_t end, std::int64_t columns) {
      const auto rows = [&](const Tensor& t) {
        return t.view({count}).slice(0, begin, end).view({-1, columns});
      };
      if (begin < end) cuda::dequantize(ctx, Weight::dense(rows(x)), rows(out));
    };
    part(0, whole, kRow);
    part(whole, count, count - whole);
  } else if (x.rank == 2) {
    cuda::dequantize(ctx, Weight::dense(x), out);
  } else {
    for (std::int64_t i = 0; i < x.size(0); ++i) {
      convert_on_cuda(ctx, x.select(0, i), out.select(0, i));
    }
  }
}

}  // namespace

void convert(Context& ctx, const ConvertArgs& args) {
  const OpScope op(ctx, "convert");
  const Tensor &x = args.x, &out = args.out;
  op.input("x", x, {DType::f32, DType::f16, DType::bf16});
  op.output("out", out, {DType::f32, DType::f16, DType::bf16});
  op.same_shape("out", out, "x", x);
  op.no_overlap("out", out, "x", x);
  op.run([&] { return "x " + to_string(x) + " out " + to_string(out); },
         [&] {
           convert_on_cpu(ctx, x, out);
           return "cpu";
         },
         [&] {
           convert_on_cuda(ctx, x, out);
           return "cuda";
         },
         [&] {
           return OpCost{x.bytes() + out.bytes(), x.numel()};
         });
}

}  // namespace tessera
