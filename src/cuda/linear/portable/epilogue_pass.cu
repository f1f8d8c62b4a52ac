// One pass over products that were made apart: out = act(product + bias) * (up + up_bias) +
// residual. It is bound by memory. If rows are made of 16-byte vectors, a thread takes eight
// neighbours of four rows: all loads are in flight before the first is used, and the biases of its
// features are read once.
//
//            features, 8 to a thread
//          |t0      |t1      | ..  |t0 of the next rows ..
//   row 0  |########|        |
//   row 1  |########|        |
//   row 2  |########|        |
//   row 3  |########|        |
#include "cuda/linear/portable/epilogue_pass.h"

#include "core/rows.h"
#include "core/type_switch.h"
#include "cuda/linear/epilogue.cuh"
#include "cuda/linear/matrix.h"
#include "cuda/runtime/launch.h"
#include "cuda/tile/element.cuh"
#include "cuda/tile/vectors.h"

namespace tessera::cuda {
namespace {

constexpr int kEpilogueThreads = 256, kVectorFeatures = 8, kVectorRows = 4;

constexpr std::int64_t epilogue_blocks(std::int64_t items) {
  return (items + kEpilogueThreads - 1) / kEpilogueThreads;
}

// ---- rows of vectors ----------------------------------------------------------------------------

template <typename T>
struct alignas(16) EightElements {
  T x[kVectorFeatures];
};

template <typename T>
__device__ EightElements<T> eight_at(const T* from) {
  return *reinterpret_cast<const EightElements<T>*>(from);
}

// P: of products; T: of residual and out.
template <typename P, typename T, Activation activation>
__global__ void __launch_bounds__(kEpilogueThreads)
    epilogue_vectors(const P* product, const P* up, Epilogue<MatrixRows> epilogue,
                     std::int64_t rows, std::int64_t features) {
  const std::int64_t vectors = features / kVectorFeatures;
  const std::int64_t item = std::int64_t{blockIdx.x} * kEpilogueThreads + threadIdx.x;
  const std::int64_t first = item / vectors * kVectorRows, n = item % vectors * kVectorFeatures;
  if (first >= rows) return;
  const auto count = static_cast<int>(std::min<std::int64_t>(kVectorRows, rows - first));

  EightElements<P> sums[kVectorRows], ups[kVectorRows];
  EightElements<T> residuals[kVectorRows];
#pragma unroll
  for (int r = 0; r < kVectorRows; ++r) {
    const std::int64_t m = first + std::min(r, count - 1);
    sums[r] = eight_at(product + m * features + n);
    if (up != nullptr) ups[r] = eight_at(up + m * features + n);
    if (epilogue.has_residual) residuals[r] = eight_at(epilogue.residual.row<const T>(m) + n);
  }
  float bias[kVectorFeatures], up_bias[kVectorFeatures];
#pragma unroll
  for (int i = 0; i < kVectorFeatures; ++i) {
    bias[i] = epilogue.bias.given() ? epilogue.bias[n + i] : 0.f;
    up_bias[i] = epilogue.up_bias.given() ? epilogue.up_bias[n + i] : 0.f;
  }
#pragma unroll
  for (int r = 0; r < kVectorRows; ++r) {
    if (r >= count) break;
    EightElements<T> out;
#pragma unroll
    for (int i = 0; i < kVectorFeatures; ++i) {
      float value = activate(activation, to_f32(sums[r].x[i]) + bias[i]);
      if (up != nullptr) value *= to_f32(ups[r].x[i]) + up_bias[i];
      if (epilogue.has_residual) value += to_f32(residuals[r].x[i]);
      out.x[i] = from_f32<T>(value);
    }
    *reinterpret_cast<EightElements<T>*>(epilogue.out.row<T>(first + r) + n) = out;
  }
}

bool made_of_vectors(const Tensor& tensor) {
  return as_matrix(tensor) && rows_begin_on_vectors(tensor);
}

bool takes_vectors(const EpiloguePass& pass) {
  return pass.out.dtype != DType::f32 && pass.out.size(-1) % kVectorFeatures == 0 &&
         made_of_vectors(pass.out) && (!pass.residual.defined() || made_of_vectors(pass.residual));
}

template <typename F>
void with_activation(Activation activation, F&& fn) {
  switch (activation) {
    case Activation::none:
      return fn(std::integral_constant<Activation, Activation::none>());
    case Activation::relu:
      return fn(std::integral_constant<Activation, Activation::relu>());
    case Activation::gelu:
      return fn(std::integral_constant<Activation, Activation::gelu>());
    case Activation::gelu_tanh:
      return fn(std::integral_constant<Activation, Activation::gelu_tanh>());
    case Activation::silu:
      return fn(std::integral_constant<Activation, Activation::silu>());
  }
}

template <typename P, typename T>
void run_vectors(const Launch& launch, const EpiloguePass& pass) {
  const std::int64_t rows = pass.product.size(0), features = pass.product.size(1);
  const std::int64_t items = (rows + kVectorRows - 1) / kVectorRows * (features / kVectorFeatures);
  with_activation(pass.activation, [&](auto activation) {
    launch(epilogue_vectors<P, T, activation()>,
           {.blocks = epilogue_blocks(items), .threads = kEpilogueThreads},
           pass.product.ptr<const P>(), pass.up.ptr<const P>(),
           Epilogue<MatrixRows>{.bias = AnyFloats(pass.bias),
                                .up_bias = AnyFloats(pass.up_bias),
                                .activation = pass.activation,
                                .residual = MatrixRows(pass.residual),
                                .has_residual = pass.residual.defined(),
                                .out = MatrixRows(pass.out),
                                .dtype = pass.out.dtype},
           rows, features);
  });
}

// ---- any rows -----------------------------------------------------------------------------------

template <typename P, typename T>
__global__ void __launch_bounds__(kEpilogueThreads)
    epilogue_elements(const P* product, const P* up, Epilogue<Rows> epilogue) {
  const Rows& out = epilogue.out;
  const std::int64_t total = out.rows() * out.cols();
  const std::int64_t step = std::int64_t{gridDim.x} * kEpilogueThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kEpilogueThreads + threadIdx.x; i < total;
       i += step) {
    const std::int64_t m = i / out.cols(), n = i % out.cols();
    const float sum = to_f32(product[i]);
    epilogue.template store_as<T>(
        up ? epilogue.gated(sum, to_f32(up[i]), n) : epilogue.value(sum, n), m, n);
  }
}

template <typename P, typename T>
void run_elements(const Launch& launch, const EpiloguePass& pass) {
  launch(epilogue_elements<P, T>,
         {.blocks = epilogue_blocks(pass.out.numel()), .threads = kEpilogueThreads},
         pass.product.ptr<const P>(), pass.up.ptr<const P>(),
         Epilogue<Rows>{.bias = AnyFloats(pass.bias),
                        .up_bias = AnyFloats(pass.up_bias),
                        .activation = pass.activation,
                        .residual = Rows(pass.residual),
                        .has_residual = pass.residual.defined(),
                        .out = Rows(pass.out),
                        .dtype = pass.out.dtype});
}

}  // namespace

void run_epilogue(Context& ctx, const EpiloguePass& pass) {
  const Launch launch(ctx, "linear");
  const bool rounded = pass.product.dtype != DType::f32;
  with_float_type(pass.out.dtype, [&](auto type) {
    using T = decltype(type);
    if constexpr (std::is_same_v<T, float>) {
      run_elements<float, float>(launch, pass);
    } else if (takes_vectors(pass)) {
      rounded ? run_vectors<T, T>(launch, pass) : run_vectors<float, T>(launch, pass);
    } else {
      rounded ? run_elements<T, T>(launch, pass) : run_elements<float, T>(launch, pass);
    }
  });
}

}  // namespace tessera::cuda
