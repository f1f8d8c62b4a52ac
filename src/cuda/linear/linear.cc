// linear() and gated_linear(): which kernel takes a product, and the road to it.
//
// cuda.stream: a few rows of f16 or bf16 (stream.cuh). Weights go through the tensor cores once,
// the epilogue is part of the kernel.
//
// cuda.strips: the same on Hopper, for more than kStreamBest of them (strips.cuh), up to 16, and
// more of small weights; where there are too few strips, cuda.panels from 9 rows on.
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
// the activations are. Decoding pays with many rows (kCrossovers). Where there is no more to the
// epilogue than a bias and a residual of the output's dtype, the library writes the output itself.
//
// cuda.plain.decode: few rows of x, and a weight that would have to be converted. It is decoded in
// registers instead, in f32.
#include "cuda/linear/linear.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <string_view>

#include "core/checked.h"
#include "core/rows.h"
#include "core/workspace.h"
#include "cuda/dequantize.h"
#include "cuda/linear/decode_tiles.h"
#include "cuda/linear/matrix.h"
#include "cuda/linear/mma.h"
#include "cuda/linear/panels.h"
#include "cuda/linear/plain.h"
#include "cuda/linear/product.h"
#include "cuda/linear/repack.h"
#include "cuda/linear/stream.h"
#include "cuda/linear/strips.h"
#include "cuda/linear/wide.h"
#include "cuda/matmul.h"
#include "quant/codec.h"

namespace tessera::cuda {
namespace {

constexpr const char* kStream = "cuda.stream";
constexpr const char* kStrips = "cuda.strips";
constexpr const char* kLibrary = "cuda.cublaslt";
constexpr const char* kPlain = "cuda.plain.decode";

// Of so many rows cuda.stream is faster than cuda.strips, which does not wait for all activations
// before the first product, but starts later.
constexpr std::int64_t kStreamBest = 4;

// By the numbers that a weight in tiles has: up to how many rows cuda.strips is faster than
// cuda.panels, though it decodes weights anew for each 16 of them; from how many rows on cuda.wide
// is faster than what there is for fewer; and from how many on, where cuda.wide does not pay or
// does not take the activations, the weight is decoded once and the library multiplies: where there
// is cuda.panels, and where there is cuda.mma alone. Decoding costs what its bytes do; cuda.panels
// costs about 6 us whatever there is to do, and a tenth more for each row than the library;
// cuda.mma costs more than twice as much for each row. Measured on an H200:
// docs/results/h200/linear.md.
struct Crossover {
  std::int64_t weights, strips, wide, library, after_mma;
};
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr Crossover kCrossovers[] = {
    {.weights = 4'000'000, .strips = 128, .wide = kNever, .library = 80, .after_mma = 65},
    {.weights = 5'000'000, .strips = 128, .wide = 600, .library = 1024, .after_mma = 65},
    {.weights = 17'000'000, .strips = 48, .wide = 600, .library = 1024, .after_mma = 65},
    {.weights = 20'000'000, .strips = 16, .wide = 600, .library = 1024, .after_mma = 65},
    {.weights = 40'000'000, .strips = 16, .wide = 450, .library = 512, .after_mma = 65},
    {.weights = 120'000'000, .strips = 16, .wide = 129, .library = 1400, .after_mma = 129},
    {.weights = kNever, .strips = 16, .wide = 129, .library = 1700, .after_mma = 193},
};
// Of fewer rows than these, cuda.wide does not pay where half of its last 256 would be empty:
// cuda.panels has 128 to a block.
constexpr std::int64_t kWideAnyRows = 1024, kPanelRows = 128;

const Crossover& crossover(const Weight& weight) {
  const std::int64_t weights = checked_mul(weight.in_features, weight.out_features);
  return *std::find_if(std::begin(kCrossovers), std::end(kCrossovers),
                       [&](const Crossover& at) { return weights <= at.weights; });
}

// ---- the choice ---------------------------------------------------------------------------------

const char* choose_for_weight(const Tensor& x, const Weight& weight, std::int64_t rows) {
  // A sum over nothing is no matter for the library.
  if (weight.in_features == 0) return kPlain;
  const bool converts = weight.format != Format::dense || weight.data.dtype != x.dtype;
  return converts && rows <= kPlainRows ? kPlain : kLibrary;
}

// Without an epilogue, into f32.
Product bare_product(const Tensor& x, const Weight& weight, const Tensor& out) {
  return {.x = x, .weight = weight, .out = out};
}

// The kernels that decode tiles as they multiply.
struct TileKernel {
  const char* name;
  std::int64_t (*scratch_bytes)(Context&, const Product&, std::int64_t rows);
  void (*multiply)(Context&, const Product&, void* scratch);
};
constexpr TileKernel kWide{"cuda.wide", wide_scratch_bytes, multiply_wide};
constexpr TileKernel kPanels{"cuda.panels", panels_scratch_bytes, multiply_panels};
constexpr TileKernel kMma{"cuda.mma", mma_scratch_bytes, multiply_mma};

bool wide_pays(const Weight& weight, std::int64_t rows) {
  const bool half_empty = (rows - 1) / kPanelRows % 2 == 0;
  return rows >= crossover(weight).wide && (rows >= kWideAnyRows || !half_empty);
}

// The one for this product; null if there is none, or it does not pay.
const TileKernel* tile_kernel(Context& ctx, const Product& product, std::int64_t rows) {
  if (rows <= kPlainRows) return nullptr;
  const Crossover& at = crossover(product.weight);
  if (wide_pays(product.weight, rows) && wide_takes(ctx, product)) return &kWide;
  if (rows < at.library && panels_take(ctx, product)) return &kPanels;
  // Both products of a gated pair by cuda.panels are faster.
  const bool panels =
      product.gated() && panels_take(ctx, bare_product(product.x, product.weight, Tensor()));
  return !panels && rows < at.after_mma && mma_takes(product) ? &kMma : nullptr;
}

const char* choose(Context& ctx, const Product& product, std::int64_t rows) {
  const bool strips_pay = rows > kStreamBest && rows <= crossover(product.weight).strips;
  if (strips_pay && strips_take(ctx, product, rows)) return kStrips;
  const TileKernel* tiles = tile_kernel(ctx, product, rows);
  const bool streams = rows <= stream_rows_at_most(ctx, product);
  if (streams && (tiles == nullptr || tiles == &kMma)) return kStream;
  if (tiles != nullptr) return tiles->name;
  if (!product.gated()) return choose_for_weight(product.x, product.weight, rows);
  const auto choose_for = [&](const Weight& weight) {
    const TileKernel* kernel = tile_kernel(ctx, bare_product(product.x, weight, Tensor()), rows);
    return kernel != nullptr ? kernel->name : choose_for_weight(product.x, weight, rows);
  };
  const char *gate = choose_for(product.weight), *up = choose_for(product.up);
  return std::string_view(gate) == up ? gate : "cuda.mixed";
}

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

// x W^T as f32 [rows, out_features], in the workspace.
const float* multiply(Context& ctx, Workspace::Frame& frame, const Tensor& x,
                      const Weight& weight) {
  const std::int64_t rows = Rows(x).rows();
  const Tensor product = frame.take(DType::f32, {rows, weight.out_features});
  const Product bare = bare_product(x, weight, product);
  if (const TileKernel* kernel = tile_kernel(ctx, bare, rows)) {
    Workspace::Frame inner(ctx.workspace());
    kernel->multiply(ctx, bare, inner.take<char>(kernel->scratch_bytes(ctx, bare, rows)));
  } else if (choose_for_weight(x, weight, rows) == kPlain) {
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
    Workspace::Frame frame(ctx.workspace());
    tiles->multiply(ctx, product, frame.take<char>(tiles->scratch_bytes(ctx, product, rows)));
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
  if (choose_for_weight(x, weight, rows) == kPlain) return unpacked;
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
  const auto include = [&](std::int64_t fewer) {
    most = std::max(most, bytes_for(ctx, product, std::min(rows, fewer)));
  };
  include(kPlainRows);
  for (const Weight* weight : {&product.weight, &product.up}) {
    if (!weight->defined()) continue;
    include(crossover(*weight).wide - 1);
    include(crossover(*weight).library - 1);
    include(crossover(*weight).after_mma - 1);
  }
  for (std::int64_t fewer = kPanelRows; fewer <= kWideAnyRows; fewer += kPanelRows) include(fewer);
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
