// Replaces src/cuda/linear/matmul.cc, which calls cuBLASLt: the same product in three loops, with
// f32 sums in the order of k.
#include "cuda/linear/matmul.h"

#include "core/half.h"
#include "core/type_switch.h"
#include "cuda_host/fake_machine.h"
#include "tessera/context.h"

namespace tessera::cuda {

std::int64_t matmul_scratch_bytes() { return 0; }

// Adds any addends, unlike cuBLASLt, so that this too is tested.
bool matmul_adds(const Tensor& out, const Addends& addends) {
  const auto fits = [&](const Tensor& tensor) {
    return !tensor.defined() || tensor.dtype == out.dtype;
  };
  return fits(addends.bias) && fits(addends.residual);
}

void matmul(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& out,
            const Addends& addends) {
  const Tensor &bias = addends.bias, &residual = addends.residual;
  test::fake::enqueue("cublasLtMatmul", static_cast<cudaStream_t>(ctx.stream()), [=] {
    with_float_type(x.dtype, [&](auto in) {
      with_float_type(out.dtype, [&](auto to) {
        using In = decltype(in);
        using Out = decltype(to);
        for (std::int64_t m = 0; m < out.size(0); ++m) {
          const In* row = x.ptr<const In>() + m * x.strides[0];
          for (std::int64_t n = 0; n < out.size(1); ++n) {
            const In* column = weight.ptr<const In>() + n * weight.strides[0];
            float sum = 0;
            for (std::int64_t k = 0; k < x.size(1); ++k)
              sum += to_float(row[k]) * to_float(column[k]);
            if (bias.defined()) sum += to_float(bias.ptr<const Out>()[n * bias.strides[0]]);
            if (residual.defined()) {
              sum += to_float(residual.ptr<const Out>()[m * residual.strides[0] + n]);
            }
            out.ptr<Out>()[m * out.strides[0] + n] = from_float<Out>(sum);
          }
        }
      });
    });
  });
}

}  // namespace tessera::cuda
