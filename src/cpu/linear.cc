#include "cpu/linear.h"

#include <algorithm>
#include <span>

#include "core/checked.h"
#include "core/rows.h"
#include "core/thread_pool.h"
#include "core/workspace.h"
#include "cpu/epilogue.h"
#include "cpu/linear_kernels.h"

namespace tessera::cpu {
namespace {

// ---- the choice of a kernel --------------------------------------------------------------------

const LinearKernel& choose(const Weight& weight, std::int64_t rows, Activations activations) {
  const bool tiles = weight.layout == WeightLayout::cpu_tiles;
  if (tiles && activations == Activations::int8) return tiles_int8_kernel(weight);
  if (rows > kFewRows) return gemm_kernel(weight);
  if (tiles) return tiles_exact_kernel();
  const bool streams = weight.format == Format::dense || weight.format == Format::fp8;
  return streams ? gemv_kernel(weight) : decode_kernel();
}

// ---- one or two products over the same x -------------------------------------------------------

struct Factor {
  const Weight* weight;
  const LinearKernel* kernel;
  PackedInput input;
};

PackedInput pack_input(Context& ctx, Workspace::Frame& frame, const Tensor& x,
                       const LinearKernel& kernel) {
  const Rows from(x);
  PackedInput input{.rows = from.rows(), .depth = from.cols()};
  input.data = frame.take<char>(kernel.input_bytes(input.rows, input.depth));
  ctx.pool().parallel_for(ceil_div(input.rows, kPackRows), [&](std::int64_t task, int) {
    const std::int64_t row = task * kPackRows;
    kernel.pack(from, x.dtype, row, std::min(kPackRows, input.rows - row), input);
  });
  return input;
}

// Rows of a tile: at most max_rows, all about the same, in whole groups of kPackRows.
std::int64_t rows_of_tile(std::int64_t rows, std::int64_t max_rows) {
  const std::int64_t tiles = ceil_div(rows, max_rows);
  return ceil_div(ceil_div(rows, tiles), kPackRows) * kPackRows;
}

// Multiplies x with one factor, or with a gate and an up factor, tile by tile.
void multiply(Context& ctx, const Tensor& x, std::span<Factor> factors, const Epilogue& epilogue) {
  const std::int64_t rows = epilogue.out.rows(), cols = epilogue.out.cols();
  if (rows == 0 || cols == 0) return;
  Workspace::Frame frame(ctx.workspace());
  std::int64_t max_rows = factors[0].kernel->max_rows, scratch_bytes = 0;
  for (Factor& factor : factors) {
    const bool packed = factor.kernel == factors[0].kernel && &factor != &factors[0];
    factor.input = packed ? factors[0].input : pack_input(ctx, frame, x, *factor.kernel);
    max_rows = std::min(max_rows, factor.kernel->max_rows);
    scratch_bytes = std::max(scratch_bytes, factor.kernel->scratch_bytes(*factor.weight));
  }

  const std::int64_t tile_rows = rows_of_tile(rows, max_rows);
  const std::int64_t product_bytes = tile_rows * kTileCols * sizeof(float);
  const std::int64_t worker_bytes = checked_align(
      checked_add(static_cast<std::int64_t>(factors.size()) * product_bytes, scratch_bytes),
      Buffer::kAlignment);
  char* memory = frame.take<char>(checked_mul(ctx.threads(), worker_bytes));

  const std::int64_t col_tiles = ceil_div(cols, kTileCols), row_tiles = ceil_div(rows, tile_rows);
  const auto multiply_tile = [&](std::int64_t task, int worker) {
    const std::int64_t row = task / col_tiles * tile_rows, col = task % col_tiles * kTileCols;
    char* scratch = memory + worker * worker_bytes;
    ProductTile tiles[2];
    for (std::size_t i = 0; i < factors.size(); ++i, scratch += product_bytes) {
      tiles[i] = {.row = row,
                  .rows = std::min(tile_rows, rows - row),
                  .col = col,
                  .cols = std::min(kTileCols, cols - col),
                  .out = reinterpret_cast<float*>(scratch)};
    }
    for (std::size_t i = 0; i < factors.size(); ++i) {
      factors[i].kernel->multiply(*factors[i].weight, factors[i].input, tiles[i], scratch);
    }
    finish_tile(epilogue, tiles[0], factors.size() > 1 ? tiles[1].out : nullptr);
  };
  // Few rows: the weights stream from memory, and a kernel asks for the tile after its own.
  if (row_tiles == 1) {
    ctx.pool().parallel_runs(col_tiles, multiply_tile);
  } else {
    ctx.pool().parallel_for(row_tiles * col_tiles, multiply_tile);
  }
}

}  // namespace

const char* linear(Context& ctx, const LinearArgs& args) {
  const Epilogue epilogue(args);
  const LinearKernel& kernel = choose(args.weight, epilogue.out.rows(), ctx.activations());
  Factor factor{&args.weight, &kernel, {}};
  multiply(ctx, args.x, std::span(&factor, 1), epilogue);
  return kernel.name;
}

const char* gated_linear(Context& ctx, const GatedLinearArgs& args) {
  const Epilogue epilogue(args);
  const std::int64_t rows = epilogue.out.rows();
  Factor factors[] = {{&args.gate, &choose(args.gate, rows, ctx.activations()), {}},
                      {&args.up, &choose(args.up, rows, ctx.activations()), {}}};
  multiply(ctx, args.x, factors, epilogue);
  return factors[0].kernel->name == factors[1].kernel->name ? factors[0].kernel->name : "cpu.mixed";
}

}  // namespace tessera::cpu
