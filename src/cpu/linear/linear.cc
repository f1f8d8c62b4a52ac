#include "cpu/linear/linear.h"

#include <algorithm>
#include <span>

#include "core/checked.h"
#include "core/rows.h"
#include "core/thread_pool.h"
#include "core/workspace.h"
#include "cpu/linear/epilogue.h"
#include "cpu/linear/kernels.h"

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

// Factors of one kernel share the packed form of x.
bool shares_input(std::span<const Factor> factors, std::size_t i) {
  return i > 0 && factors[i].kernel == factors[0].kernel;
}

std::int64_t max_tile_rows(std::span<const Factor> factors) {
  std::int64_t rows = factors[0].kernel->max_rows;
  for (const Factor& factor : factors) rows = std::min(rows, factor.kernel->max_rows);
  return rows;
}

std::int64_t product_bytes(std::int64_t tile_rows) {
  return tile_rows * kTileCols * static_cast<std::int64_t>(sizeof(float));
}

// One thread's: a product for each factor, and what the kernels need beside.
std::int64_t worker_bytes(std::span<const Factor> factors, std::int64_t tile_rows) {
  std::int64_t scratch = 0;
  for (const Factor& factor : factors) {
    scratch = std::max(scratch, factor.kernel->scratch_bytes(*factor.weight));
  }
  const std::int64_t products = std::ssize(factors) * product_bytes(tile_rows);
  return checked_align(checked_add(products, scratch), Buffer::kAlignment);
}

// Multiplies x with one factor, or with a gate and an up factor, tile by tile.
void multiply(Context& ctx, const Tensor& x, std::span<Factor> factors, const Epilogue& epilogue) {
  const std::int64_t rows = epilogue.out.rows(), cols = epilogue.out.cols();
  if (rows == 0 || cols == 0) return;
  Workspace::Frame frame(ctx.workspace());
  for (std::size_t i = 0; i < factors.size(); ++i) {
    factors[i].input =
        shares_input(factors, i) ? factors[0].input : pack_input(ctx, frame, x, *factors[i].kernel);
  }
  const std::int64_t tile_rows = rows_of_tile(rows, max_tile_rows(factors));
  const std::int64_t worker_stride = worker_bytes(factors, tile_rows);
  char* memory = frame.take<char>(checked_mul(ctx.threads(), worker_stride));

  const std::int64_t col_tiles = ceil_div(cols, kTileCols), row_tiles = ceil_div(rows, tile_rows);
  const auto multiply_tile = [&](std::int64_t task, int worker) {
    const std::int64_t row = task / col_tiles * tile_rows, col = task % col_tiles * kTileCols;
    char* scratch = memory + worker * worker_stride;
    ProductTile tiles[2];
    for (std::size_t i = 0; i < factors.size(); ++i, scratch += product_bytes(tile_rows)) {
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

// What multiply() takes for `rows` rows or fewer of those that the same kernels get.
std::int64_t multiply_scratch_bytes(Context& ctx, std::span<const Factor> factors,
                                    std::int64_t rows, std::int64_t depth) {
  ScratchSize size;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    if (!shares_input(factors, i)) size.add<char>(factors[i].kernel->input_bytes(rows, depth));
  }
  // rows_of_tile() is at most this, for any number of rows up to `rows`.
  const std::int64_t tile_rows = checked_align(std::min(rows, max_tile_rows(factors)), kPackRows);
  return size.add<char>(checked_mul(ctx.threads(), worker_bytes(factors, tile_rows))).bytes();
}

// Few rows have kernels of their own, and these may need more. Sets the factors' kernels.
std::int64_t scratch_bytes(Context& ctx, const Tensor& x, std::span<Factor> factors) {
  const Rows from(x);
  std::int64_t most = 0;
  for (const std::int64_t rows : {from.rows(), std::min(from.rows(), kFewRows)}) {
    for (Factor& factor : factors) {
      factor.kernel = &choose(*factor.weight, rows, ctx.activations());
    }
    most = std::max(most, multiply_scratch_bytes(ctx, factors, rows, from.cols()));
  }
  return most;
}

}  // namespace

std::int64_t linear_scratch_bytes(Context& ctx, const LinearArgs& args) {
  Factor factor{&args.weight, nullptr, {}};
  return scratch_bytes(ctx, args.x, std::span(&factor, 1));
}

std::int64_t gated_linear_scratch_bytes(Context& ctx, const GatedLinearArgs& args) {
  Factor factors[] = {{&args.gate, nullptr, {}}, {&args.up, nullptr, {}}};
  return scratch_bytes(ctx, args.x, factors);
}

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
