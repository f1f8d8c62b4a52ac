#include "cuda/linear/library.h"

#include <optional>

#include "core/checked.h"
#include "core/rows.h"
#include "core/workspace.h"
#include "cuda/linear/layout/decode_tiles.h"
#include "cuda/linear/layout/repack.h"
#include "cuda/linear/matmul.h"
#include "cuda/linear/matrix.h"
#include "cuda/linear/portable/plain.h"
#include "cuda/quant/dequantize.h"
#include "quant/codec.h"

namespace tessera::cuda {
namespace {

// ---- operands -----------------------------------------------------------------------------------

DType operand_dtype(const Product& product) {
  const Weight& weight = product.weight;
  const bool differ = weight.format == Format::dense && weight.data.dtype != product.x.dtype;
  return differ ? DType::f32 : product.x.dtype;
}

// A dense factor as a matrix of this dtype; the tensor itself if it is one already.
Tensor operand(Context& ctx, Workspace::Frame& frame, const Tensor& dense, DType dtype) {
  const std::optional<Tensor> itself = as_matrix(dense);
  if (itself && dense.dtype == dtype) return *itself;
  const Rows rows(dense);
  const Tensor packed = frame.take(dtype, {rows.rows(), rows.cols()});
  pack_rows(ctx, dense, packed);
  return packed;
}

// A weight in tiles, back in the published layout.
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

// ---- scratch ------------------------------------------------------------------------------------

std::int64_t operand_bytes(const Tensor& dense, std::int64_t rows, DType dtype) {
  if (as_matrix(dense) && dense.dtype == dtype) return 0;
  return matrix_bytes(rows, dense.size(-1), dtype);
}

std::int64_t published_bytes(const Weight& weight) {
  if (weight.layout != WeightLayout::cuda_tiles) return 0;
  const Published sizes(weight);
  const std::int64_t n = weight.out_features;
  const std::int64_t scales = matrix_bytes(n, sizes.blocks, weight.scales.dtype);
  const std::int64_t zeros =
      weight.zeros.defined() ? matrix_bytes(n, sizes.blocks, weight.zeros.dtype) : 0;
  return checked_add(matrix_bytes(n, sizes.row_bytes, weight.data.dtype),
                     checked_add(scales, zeros));
}

// ---- what the library writes itself -------------------------------------------------------------

// A product with no more than a bias and a residual. (The library has activations too, but its relu
// is a maximum, which loses NaN, and its gelu is coarse.)
struct DirectOutput {
  Tensor out;
  Addends addends;
};
std::optional<DirectOutput> direct_output(const Product& product) {
  const bool dtype_fits =
      product.out.dtype == DType::f32 || product.out.dtype == operand_dtype(product);
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

}  // namespace

// ---- cuda.cublaslt ------------------------------------------------------------------------------

bool takes_library(const LinearCall& call) {
  const Product& product = call.product;
  if (product.weight.in_features == 0) return false;  // the library takes no empty sums
  return !product.out.defined() || direct_output(product).has_value();
}

LibraryPlan plan_library(const LinearCall& call) {
  const Weight& weight = call.product.weight;
  LibraryPlan plan{.dtype = operand_dtype(call.product)};
  std::int64_t factor = 0;
  if (weight.format == Format::dense) {
    factor = operand_bytes(weight.data, weight.out_features, plan.dtype);
  } else {
    plan.reads_tiles = weight.layout == WeightLayout::cuda_tiles && plan.dtype != DType::f32;
    factor = checked_add(plan.reads_tiles ? 0 : published_bytes(weight),
                         matrix_bytes(weight.out_features, weight.in_features, plan.dtype));
  }
  const std::int64_t x = operand_bytes(call.product.x, call.m, plan.dtype);
  plan.scratch_bytes = checked_add(checked_add(factor, x), matmul_scratch_bytes());
  return plan;
}

void run_library(const LinearCall& call, const LibraryPlan& plan) {
  const Weight& weight = call.product.weight;
  Workspace::Frame frame(call.ctx.workspace());
  Tensor factor;
  if (weight.format == Format::dense) {
    factor = operand(call.ctx, frame, weight.data, plan.dtype);
  } else {
    factor = frame.take(plan.dtype, {weight.out_features, weight.in_features});
    if (plan.reads_tiles) {
      decode_tiles(call.ctx, weight, factor);
    } else {
      cuda::dequantize(call.ctx, published(call.ctx, frame, weight), factor);
    }
  }
  const DirectOutput direct = direct_output(call.product).value();
  matmul(call.ctx, operand(call.ctx, frame, call.product.x, plan.dtype), factor, direct.out,
         direct.addends);
}

// ---- cuda.plain.decode --------------------------------------------------------------------------

bool takes_decode(const LinearCall& call) { return !call.product.out.defined(); }

DecodePlan plan_decode(const LinearCall& call) {
  return {.scratch_bytes = published_bytes(call.product.weight)};
}

void run_decode(const LinearCall& call, const DecodePlan&) {
  const Product& product = call.product;
  Workspace::Frame frame(call.ctx.workspace());
  multiply_few(call.ctx, product.x, published(call.ctx, frame, product.weight),
               product.out.ptr<float>());
}

}  // namespace tessera::cuda
