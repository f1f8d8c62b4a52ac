// Decodes a weight of any format to a dense matrix: one block for each row. Thread t decodes
// weights t, t + 256, ... of the row, one at a time; neighbours read the same bytes, from the
// cache.
#include "cuda/quant/dequantize.h"

#include "core/rows.h"
#include "core/type_switch.h"
#include "cuda/quant/codec.cuh"
#include "cuda/runtime/launch.h"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;

template <typename Decoder, typename T>
__global__ void __launch_bounds__(kThreads) decode_rows(Decoder weight, Rows out) {
  for (std::int64_t row = blockIdx.x; row < out.rows(); row += gridDim.x) {
    T* to = out.row<T>(row);
    for (std::int64_t k = threadIdx.x; k < out.cols(); k += kThreads) {
      to[k] = from_f32<T>(weight(row, k));
    }
  }
}

}  // namespace

void dequantize(Context& ctx, const Weight& weight, const Tensor& out) {
  if (out.numel() == 0) return;
  const Rows rows(out);
  const Launch launch(ctx, "dequantize");
  with_decoder(weight, [&](auto decoder) {
    with_float_type(out.dtype, [&](auto type) {
      launch(decode_rows<decltype(decoder), decltype(type)>,
             {.blocks = rows.rows(), .threads = kThreads}, decoder, rows);
    });
  });
}

}  // namespace tessera::cuda
