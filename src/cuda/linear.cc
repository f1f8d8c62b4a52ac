// linear() and gated_linear(): a product in f32, by one of two kernels, and an epilogue over it.
//
//   x ----------------------+--> product f32 [rows, out] --> epilogue --> out
//   weight --> operand -----+
//
// cuda.cublaslt: the operands are x and a dense matrix of one dtype. Dense factors of one dtype are
// read where they are; factors of two dtypes meet in f32. A packed weight is decoded into the
// workspace, in the dtype of x: for f16 and bf16 each weight is rounded once more, by no more than
// the activations are.
//
// cuda.plain.decode: few rows of x, and a weight that would have to be converted. It is decoded in
// registers instead, in f32.
#include "cuda/linear.h"

#include <algorithm>
#include <optional>

#include "core/checked.h"
#include "core/rows.h"
#include "core/workspace.h"
#include "cuda/dequantize.h"
#include "cuda/linear_kernels.h"
#include "cuda/matmul.h"

namespace tessera::cuda {
namespace {

constexpr const char* kLibrary = "cuda.cublaslt";
constexpr const char* kPlain = "cuda.plain.decode";

const char* choose(const Tensor& x, const Weight& weight, std::int64_t rows) {
  // A sum over nothing is no matter for the library.
  if (weight.in_features == 0) return kPlain;
  const bool converts = weight.format != Format::dense || weight.data.dtype != x.dtype;
  return converts && rows <= kFewRows ? kPlain : kLibrary;
}

// ---- operands -----------------------------------------------------------------------------------

// What both operands of the library are made of.
DType operand_dtype(const Tensor& x, const Weight& weight) {
  const bool differ = weight.format == Format::dense && weight.data.dtype != x.dtype;
  return differ ? DType::f32 : x.dtype;
}

// The tensor as [rows, columns] with one stride from row to row, if that describes it and is one
// that the library takes.
std::optional<Tensor> as_matrix(const Tensor& tensor) {
  const std::int64_t columns = tensor.size(-1);
  std::int64_t rows = 1, stride = columns;
  for (int d = tensor.rank - 2; d >= 0; --d) {
    if (tensor.shape[d] == 1) continue;
    if (rows == 1) {
      stride = tensor.strides[d];
    } else if (tensor.strides[d] != rows * stride) {
      return std::nullopt;
    }
    rows *= tensor.shape[d];
  }
  if (stride < columns) return std::nullopt;  // rows that overlap
  const std::int64_t shape[] = {rows, columns}, strides[] = {stride, 1};
  return Tensor(tensor.data, tensor.dtype, shape, strides, tensor.device);
}

// A dense factor as a matrix of this dtype: itself where it is one already.
Tensor operand(Context& ctx, Workspace::Frame& frame, const Tensor& dense, DType dtype) {
  const std::optional<Tensor> itself = as_matrix(dense);
  if (itself && dense.dtype == dtype) return *itself;
  const Rows rows(dense);
  const Tensor packed = frame.take(dtype, {rows.rows(), rows.cols()});
  pack_rows(ctx, dense, packed);
  return packed;
}

void multiply_by_library(Context& ctx, const Tensor& x, const Weight& weight, const Tensor& out) {
  Workspace::Frame frame(ctx.workspace());
  const DType dtype = operand_dtype(x, weight);
  Tensor factor;
  if (weight.format == Format::dense) {
    factor = operand(ctx, frame, weight.data, dtype);
  } else {
    factor = frame.take(dtype, {weight.out_features, weight.in_features});
    cuda::dequantize(ctx, weight, factor);
  }
  matmul(ctx, operand(ctx, frame, x, dtype), factor, out);
}

// ---- products -----------------------------------------------------------------------------------

// x W^T as f32 [rows, out_features], in the workspace.
const float* multiply(Context& ctx, Workspace::Frame& frame, const Tensor& x,
                      const Weight& weight) {
  const std::int64_t rows = Rows(x).rows();
  const Tensor product = frame.take(DType::f32, {rows, weight.out_features});
  if (choose(x, weight, rows) == kPlain) {
    multiply_few(ctx, x, weight, product.ptr<float>());
  } else {
    multiply_by_library(ctx, x, weight, product);
  }
  return product.ptr<float>();
}

// Where the product is all there is to the output, the library writes it there, if it can.
std::optional<Tensor> direct_output(const LinearArgs& args) {
  const bool bare =
      !args.bias.defined() && !args.residual.defined() && args.activation == Activation::none;
  const bool dtype_fits =
      args.out.dtype == DType::f32 || args.out.dtype == operand_dtype(args.x, args.weight);
  return bare && dtype_fits ? as_matrix(args.out) : std::nullopt;
}

// ---- what they take -----------------------------------------------------------------------------

std::int64_t operand_bytes(const Tensor& dense, DType dtype) {
  if (as_matrix(dense) && dense.dtype == dtype) return 0;
  return ScratchSize().add<char>(checked_mul(dense.numel(), size_of(dtype))).bytes();
}

std::int64_t library_scratch_bytes(const Tensor& x, const Weight& weight) {
  const DType dtype = operand_dtype(x, weight);
  const std::int64_t weights = checked_mul(weight.out_features, weight.in_features);
  const std::int64_t factor =
      weight.format == Format::dense
          ? operand_bytes(weight.data, dtype)
          : ScratchSize().add<char>(checked_mul(weights, size_of(dtype))).bytes();
  return checked_add(checked_add(factor, operand_bytes(x, dtype)), matmul_scratch_bytes());
}

// Of the kernel for few rows there is nothing beside the product.
std::int64_t factor_scratch_bytes(const Tensor& x, const Weight& weight) {
  const bool plain = choose(x, weight, Rows(x).rows()) == kPlain;
  return plain ? 0 : library_scratch_bytes(x, weight);
}

std::int64_t product_scratch_bytes(const Tensor& x, const Weight& weight) {
  return ScratchSize().add<float>(checked_mul(Rows(x).rows(), weight.out_features)).bytes();
}

}  // namespace

// A product that goes straight to the output takes less; with few rows it may not go there.
std::int64_t linear_scratch_bytes(const LinearArgs& args) {
  const std::int64_t factor = factor_scratch_bytes(args.x, args.weight);
  const bool direct =
      direct_output(args) && choose(args.x, args.weight, Rows(args.x).rows()) == kLibrary;
  const std::int64_t product = product_scratch_bytes(args.x, args.weight);
  if (!direct) return checked_add(product, factor);
  const std::int64_t rows = std::min(Rows(args.x).rows(), kFewRows);
  return std::max(factor,
                  ScratchSize().add<float>(checked_mul(rows, args.weight.out_features)).bytes());
}

std::int64_t gated_linear_scratch_bytes(const GatedLinearArgs& args) {
  const std::int64_t gate = product_scratch_bytes(args.x, args.gate);
  const std::int64_t both = checked_add(gate, product_scratch_bytes(args.x, args.up));
  return std::max(checked_add(gate, factor_scratch_bytes(args.x, args.gate)),
                  checked_add(both, factor_scratch_bytes(args.x, args.up)));
}

const char* linear(Context& ctx, const LinearArgs& args) {
  const char* kernel = choose(args.x, args.weight, Rows(args.x).rows());
  if (args.out.numel() == 0) return kernel;
  const std::optional<Tensor> direct = direct_output(args);
  if (direct && kernel == kLibrary) {
    multiply_by_library(ctx, args.x, args.weight, *direct);
    return kernel;
  }
  Workspace::Frame frame(ctx.workspace());
  finish(ctx, {.product = multiply(ctx, frame, args.x, args.weight),
               .bias = args.bias,
               .activation = args.activation,
               .residual = args.residual,
               .out = args.out});
  return kernel;
}

const char* gated_linear(Context& ctx, const GatedLinearArgs& args) {
  const std::int64_t rows = Rows(args.x).rows();
  const char* kernel = choose(args.x, args.gate, rows);
  if (kernel != choose(args.x, args.up, rows)) kernel = "cuda.mixed";
  if (args.out.numel() == 0) return kernel;
  Workspace::Frame frame(ctx.workspace());
  finish(ctx, {.product = multiply(ctx, frame, args.x, args.gate),
               .up = multiply(ctx, frame, args.x, args.up),
               .bias = args.gate_bias,
               .up_bias = args.up_bias,
               .activation = args.activation,
               .out = args.out});
  return kernel;
}

}  // namespace tessera::cuda
