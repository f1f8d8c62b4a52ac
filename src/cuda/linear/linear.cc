// linear() and gated_linear(): the kernels that take a product, and the road to each; choose.h says
// which it is.
//
// cuda.stream: a few rows of f16 or bf16 (stream.cuh). Weights go through the tensor cores once,
// the epilogue is part of the kernel.
//
// cuda.strips: the same on Hopper, from 5 rows on (strips.cuh), up to 16, and more of small
// weights; where there are too few strips, cuda.panels from 9 rows on.
//
// cuda.panels: more rows of f16 or bf16, on Hopper (panels.cuh). Weights are decoded in registers,
// the epilogue is part of the kernel. cuda.wide: hundreds of them (wide.cuh), weights are decoded
// into shared memory. gated_linear() makes both products in f32 by one of these.
//
// cuda.mma: more rows than cuda.stream takes, on any GPU (mma.cuh). The epilogue and the product of
// a gated pair are part of the kernel.
//
// Otherwise a product in f32, by one of two kernels, and an epilogue over it. A weight in tiles is
// brought back to the published layout first, in the workspace.
//
//   x ----------------------+--> product f32 [rows, out] --> epilogue --> out
//   weight --> operand -----+
//
// cuda.cublaslt: the operands are x and a dense matrix of one dtype. Dense factors of one dtype are
// read where they are; factors of two dtypes meet in f32. A packed weight is decoded into the
// workspace, in the dtype of x: for f16 and bf16 each weight is rounded once more, by no more than
// the activations are. Decoding pays with many rows. Where there is no more to the
// epilogue than a bias and a residual of the output's dtype, the library writes the output itself.
//
// cuda.plain.decode: few rows of x, and a weight that would have to be converted. It is decoded in
// registers instead, in f32.
#include "cuda/linear/linear.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "core/checked.h"
#include "core/rows.h"
#include "core/workspace.h"
#include "cuda/linear/hopper/strips.h"
#include "cuda/linear/layout/decode_tiles.h"
#include "cuda/linear/layout/repack.h"
#include "cuda/linear/matmul.h"
#include "cuda/linear/matrix.h"
#include "cuda/linear/plan/choose.h"
#include "cuda/linear/portable/plain.h"
#include "cuda/linear/portable/stream.h"
#include "cuda/linear/product.h"
#include "cuda/quant/dequantize.h"
#include "quant/codec.h"

namespace tessera::cuda {
namespace {

// ---- operands -----------------------------------------------------------------------------------

// What both operands of the library are made of.
DType operand_dtype(const Tensor& x, const Weight& weight) {
  const bool differ = weight.format == Format::dense && weight.data.dtype != x.dtype;
  return differ ? DType::f32 : x.dtype;
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

// A weight in tiles as it was published.
struct Published {
  std::int64_t row_bytes, blocks;

  explicit Published(const Weight& weight)
      : row_bytes(quant::row_bytes(weight.format, weight.in_features)),
        blocks(quant::blocks_of_row(weight.group, weight.in_features)) {}
};

Weight published(Context& ctx, Workspace::Frame& frame, const Weight& weight) {
  if (weight.layout != WeightLayout::cuda_tiles) return weight;
  const Published sizes(weight);
  Weight result = weight;
  result.layout = WeightLayout::published;
  result.row_scales = {};
  result.data = frame.take(weight.data.dtype, {weight.out_features, sizes.row_bytes});
  result.scales = frame.take(weight.scales.dtype, {weight.out_features, sizes.blocks});
  if (weight.zeros.defined()) {
    result.zeros = frame.take(weight.zeros.dtype, {weight.out_features, sizes.blocks});
  }
  unpack(ctx, weight, result);
  return result;
}

// Straight from the tiles; otherwise by way of the published layout.
bool decodes_tiles(const Weight& weight, DType dtype) {
  return weight.layout == WeightLayout::cuda_tiles && dtype != DType::f32;
}

// ---- products -----------------------------------------------------------------------------------

void multiply_by_library(Context& ctx, const Tensor& x, const Weight& weight, const Tensor& out,
                         const Addends& addends = {}) {
  Workspace::Frame frame(ctx.workspace());
  const DType dtype = operand_dtype(x, weight);
  Tensor factor;
  if (weight.format == Format::dense) {
    factor = operand(ctx, frame, weight.data, dtype);
  } else {
    factor = frame.take(dtype, {weight.out_features, weight.in_features});
    if (decodes_tiles(weight, dtype)) {
      decode_tiles(ctx, weight, factor);
    } else {
      cuda::dequantize(ctx, published(ctx, frame, weight), factor);
    }
  }
  matmul(ctx, operand(ctx, frame, x, dtype), factor, out, addends);
}

void multiply_by_tiles(Context& ctx, const TileKernel& kernel, const Product& product) {
  Workspace::Frame frame(ctx.workspace());
  const std::int64_t rows = Rows(product.x).rows();
  kernel.multiply(ctx, product, frame.take<char>(kernel.scratch_bytes(ctx, product, rows)));
}

// x W^T as f32 [rows, out_features], in the workspace.
const float* multiply(Context& ctx, Workspace::Frame& frame, const Tensor& x,
                      const Weight& weight) {
  const std::int64_t rows = Rows(x).rows();
  const Tensor product = frame.take(DType::f32, {rows, weight.out_features});
  const Product bare = bare_product(x, weight, product);
  if (const TileKernel* kernel = tile_kernel(ctx, bare, rows)) {
    multiply_by_tiles(ctx, *kernel, bare);
  } else if (choose_for_weight(x, weight, rows) == kPlainDecode) {
    Workspace::Frame inner(ctx.workspace());
    multiply_few(ctx, x, published(ctx, inner, weight), product.ptr<float>());
  } else {
    multiply_by_library(ctx, x, weight, product);
  }
  return product.ptr<float>();
}

// What the library writes by itself, if it can: a product with no more than a bias and a residual.
// (It has activations too, but a maximum for relu, which loses NaN, and a coarse gelu.)
struct DirectOutput {
  Tensor out;
  Addends addends;
};
std::optional<DirectOutput> direct_output(const Product& product) {
  const bool dtype_fits = product.out.dtype == DType::f32 ||
                          product.out.dtype == operand_dtype(product.x, product.weight);
  if (product.gated() || product.activation != Activation::none || !dtype_fits) return {};
  const std::optional<Tensor> out = as_matrix(product.out);
  if (!out) return {};
  Addends addends{.bias = product.bias};
  if (product.residual.defined()) {
    const std::optional<Tensor> residual = as_matrix(product.residual);
    if (!residual) return {};
    addends.residual = *residual;
  }
  if (!matmul_adds(*out, addends)) return {};
  return DirectOutput{*out, addends};
}

const char* run(Context& ctx, const Product& product) {
  const char* kernel = choose(ctx, product, Rows(product.x).rows());
  if (product.out.numel() == 0) return kernel;
  if (kernel == kStream) {
    stream(ctx, product);
    return kernel;
  }
  if (kernel == kStrips) {
    multiply_strips(ctx, product);
    return kernel;
  }
  const std::int64_t rows = Rows(product.x).rows();
  if (const TileKernel* tiles = tile_kernel(ctx, product, rows)) {
    multiply_by_tiles(ctx, *tiles, product);
    return kernel;
  }
  const std::optional<DirectOutput> direct = direct_output(product);
  if (direct && kernel == kLibrary) {
    multiply_by_library(ctx, product.x, product.weight, direct->out, direct->addends);
    return kernel;
  }
  Workspace::Frame frame(ctx.workspace());
  finish(ctx, {.product = multiply(ctx, frame, product.x, product.weight),
               .up = product.gated() ? multiply(ctx, frame, product.x, product.up) : nullptr,
               .bias = product.bias,
               .up_bias = product.up_bias,
               .activation = product.activation,
               .residual = product.residual,
               .out = product.out});
  return kernel;
}

// ---- what they take -----------------------------------------------------------------------------

std::int64_t matrix_bytes(std::int64_t rows, std::int64_t columns, DType dtype) {
  return ScratchSize().add<char>(checked_mul(checked_mul(rows, columns), size_of(dtype))).bytes();
}

std::int64_t operand_bytes(const Tensor& dense, std::int64_t rows, DType dtype) {
  if (as_matrix(dense) && dense.dtype == dtype) return 0;
  return matrix_bytes(rows, dense.size(-1), dtype);
}

std::int64_t published_bytes(const Weight& weight) {
  if (weight.layout != WeightLayout::cuda_tiles) return 0;
  const Published sizes(weight);
  const std::int64_t rows = weight.out_features;
  const std::int64_t scales = matrix_bytes(rows, sizes.blocks, weight.scales.dtype);
  const std::int64_t zeros =
      weight.zeros.defined() ? matrix_bytes(rows, sizes.blocks, weight.zeros.dtype) : 0;
  return checked_add(matrix_bytes(rows, sizes.row_bytes, weight.data.dtype),
                     checked_add(scales, zeros));
}

std::int64_t tile_kernel_bytes(Context& ctx, const TileKernel& kernel, const Product& product,
                               std::int64_t rows) {
  return ScratchSize().add<char>(kernel.scratch_bytes(ctx, product, rows)).bytes();
}

// Beside the product itself.
std::int64_t factor_bytes(Context& ctx, const Tensor& x, const Weight& weight, std::int64_t rows) {
  const Product bare = bare_product(x, weight, Tensor());
  if (const TileKernel* kernel = tile_kernel(ctx, bare, rows)) {
    return tile_kernel_bytes(ctx, *kernel, bare, rows);
  }
  const std::int64_t unpacked = published_bytes(weight);
  if (choose_for_weight(x, weight, rows) == kPlainDecode) return unpacked;
  const DType dtype = operand_dtype(x, weight);
  const std::int64_t factor =
      weight.format == Format::dense
          ? operand_bytes(weight.data, weight.out_features, dtype)
          : checked_add(decodes_tiles(weight, dtype) ? 0 : unpacked,
                        matrix_bytes(weight.out_features, weight.in_features, dtype));
  return checked_add(checked_add(factor, operand_bytes(x, rows, dtype)), matmul_scratch_bytes());
}

std::int64_t bytes_for(Context& ctx, const Product& product, std::int64_t rows) {
  const char* kernel = choose(ctx, product, rows);
  if (kernel == kStream || kernel == kStrips) return 0;
  if (const TileKernel* tiles = tile_kernel(ctx, product, rows)) {
    return tile_kernel_bytes(ctx, *tiles, product, rows);
  }
  const Weight &weight = product.weight, &up = product.up;
  const std::int64_t factor = factor_bytes(ctx, product.x, weight, rows);
  if (direct_output(product) && kernel == kLibrary) return factor;
  const std::int64_t first = matrix_bytes(rows, weight.out_features, DType::f32);
  const std::int64_t most = checked_add(first, factor);
  if (!product.gated()) return most;
  const std::int64_t both = checked_add(first, matrix_bytes(rows, up.out_features, DType::f32));
  return std::max(most, checked_add(both, factor_bytes(ctx, product.x, up, rows)));
}

// With more rows a kernel takes more; with fewer rows it may be another one.
std::int64_t most_bytes(Context& ctx, const Product& product) {
  const std::int64_t rows = Rows(product.x).rows();
  std::int64_t most = bytes_for(ctx, product, rows);
  for (const std::int64_t fewer : rows_of_other_kernels(product)) {
    most = std::max(most, bytes_for(ctx, product, std::min(rows, fewer)));
  }
  return most;
}

}  // namespace

std::int64_t linear_scratch_bytes(Context& ctx, const LinearArgs& args) {
  return most_bytes(ctx, product_of(args));
}
std::int64_t gated_linear_scratch_bytes(Context& ctx, const GatedLinearArgs& args) {
  return most_bytes(ctx, product_of(args));
}

const char* linear(Context& ctx, const LinearArgs& args) { return run(ctx, product_of(args)); }
const char* gated_linear(Context& ctx, const GatedLinearArgs& args) {
  return run(ctx, product_of(args));
}

}  // namespace tessera::cuda
