// linear() and gated_linear() on the CPU: chooses a kernel, packs x for it, and computes the
// product tile by tile (kernels.h has the drawing). The epilogue is applied while a tile is in the
// cache.
//
//   weight                         up to kFewM tokens   more tokens
//   in tiles, activations in int8  tiles_int8.cc        tiles_int8.cc
//   in tiles, exact activations    tiles_exact.cc       gemm_f32.cc
//   dense, fp8                     gemv.cc              gemm_f32.cc
//   packed, published layout       gemv.cc (decoded)    gemm_f32.cc
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

// Every kernel computes a row in the same way, whatever rows are beside it. So a row's bits depend
// only on the kernel, and the kernel on whether its tokens count as few.
const LinearKernel& choose(const Weight& weight, bool few, Activations activations) {
  const bool tiles = weight.layout == WeightLayout::cpu_tiles;
  if (tiles && activations == Activations::int8) return tiles_int8_kernel(weight);
  if (!few) return gemm_kernel(weight);
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
  PackedInput input{.m_size = from.rows(), .k_size = from.cols()};
  input.data = frame.take<char>(kernel.input_bytes(input.m_size, input.k_size));
  ctx.pool().parallel_for(ceil_div(input.m_size, kernel.pack_m), [&](std::int64_t task, int) {
    const std::int64_t m0 = task * kernel.pack_m;
    kernel.pack(from, x.dtype, m0, std::min(kernel.pack_m, input.m_size - m0), input);
  });
  return input;
}

// Tokens of a tile: at most max_m, about the same for all tiles, in whole groups of kPackM.
std::int64_t tile_m_size(std::int64_t m_size, std::int64_t max_m) {
  const std::int64_t tiles = ceil_div(m_size, max_m);
  return ceil_div(ceil_div(m_size, tiles), kPackM) * kPackM;
}

// Factors with the same kernel share the packed form of x.
bool shares_input(std::span<const Factor> factors, std::size_t i) {
  return i > 0 && factors[i].kernel == factors[0].kernel;
}

std::int64_t max_tile_m(std::span<const Factor> factors) {
  std::int64_t m_size = factors[0].kernel->max_m;
  for (const Factor& factor : factors) m_size = std::min(m_size, factor.kernel->max_m);
  return m_size;
}

std::int64_t product_bytes(std::int64_t tile_m) {
  return tile_m * kTileN * static_cast<std::int64_t>(sizeof(float));
}

// Memory of one thread: a product for each factor, and the scratch of the kernels.
std::int64_t worker_bytes(std::span<const Factor> factors, std::int64_t tile_m) {
  std::int64_t scratch = 0;
  for (const Factor& factor : factors) {
    scratch = std::max(scratch, factor.kernel->scratch_bytes(*factor.weight));
  }
  const std::int64_t products = std::ssize(factors) * product_bytes(tile_m);
  return checked_align(checked_add(products, scratch), Buffer::kAlignment);
}

// Multiplies x with one factor, or with a gate and an up factor, tile by tile.
void multiply(Context& ctx, const Tensor& x, std::span<Factor> factors, const Epilogue& epilogue) {
  const std::int64_t m_size = epilogue.out.rows(), n_size = epilogue.out.cols();
  if (m_size == 0 || n_size == 0) return;
  Workspace::Frame frame(ctx.workspace());
  for (std::size_t i = 0; i < factors.size(); ++i) {
    factors[i].input =
        shares_input(factors, i) ? factors[0].input : pack_input(ctx, frame, x, *factors[i].kernel);
  }
  const std::int64_t tile_m = tile_m_size(m_size, max_tile_m(factors));
  const std::int64_t worker_stride = worker_bytes(factors, tile_m);
  char* memory = frame.take<char>(checked_mul(ctx.threads(), worker_stride));

  const std::int64_t n_tiles = ceil_div(n_size, kTileN), m_tiles = ceil_div(m_size, tile_m);
  const auto multiply_tile = [&](std::int64_t task, int worker) {
    const std::int64_t m0 = task / n_tiles * tile_m, n0 = task % n_tiles * kTileN;
    char* scratch = memory + worker * worker_stride;
    ProductTile tiles[2];
    for (std::size_t i = 0; i < factors.size(); ++i, scratch += product_bytes(tile_m)) {
      tiles[i] = {.m0 = m0,
                  .m_size = std::min(tile_m, m_size - m0),
                  .n0 = n0,
                  .n_size = std::min(kTileN, n_size - n0),
                  .out = reinterpret_cast<float*>(scratch)};
    }
    for (std::size_t i = 0; i < factors.size(); ++i) {
      factors[i].kernel->multiply(*factors[i].weight, factors[i].input, tiles[i], scratch);
    }
    apply_epilogue(epilogue, tiles[0], factors.size() > 1 ? tiles[1].out : nullptr);
  };
  // With few tokens, weights stream from memory, and a kernel prefetches the tile after its own. So
  // each thread gets neighbouring tiles.
  if (m_tiles == 1) {
    ctx.pool().parallel_runs(n_tiles, multiply_tile);
  } else {
    ctx.pool().parallel_for(m_tiles * n_tiles, multiply_tile);
  }
}

// Workspace that multiply() takes for m_size tokens, or for fewer that go to the same kernels.
std::int64_t multiply_scratch_bytes(Context& ctx, std::span<const Factor> factors,
                                    std::int64_t m_size, std::int64_t k_size) {
  ScratchSize size;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    if (!shares_input(factors, i)) size.add<char>(factors[i].kernel->input_bytes(m_size, k_size));
  }
  // tile_m_size() is at most this, for any number of tokens up to m_size.
  const std::int64_t tile_m = checked_align(std::min(m_size, max_tile_m(factors)), kPackM);
  return size.add<char>(checked_mul(ctx.threads(), worker_bytes(factors, tile_m))).bytes();
}

// The most for x and for fewer tokens. Few tokens have their own kernels, which may need more
// memory. Sets the factors' kernels.
std::int64_t most_scratch_bytes(Context& ctx, const Tensor& x, std::int64_t fixed_rows,
                                std::span<Factor> factors) {
  const std::int64_t m_size = Rows(x).rows(), k_size = Rows(x).cols();
  const std::int64_t few = fixed_rows > 0 ? fixed_rows : std::min(m_size, kFewM);
  const bool has_many = fixed_rows < 0 ? m_size > kFewM : m_size > fixed_rows;
  std::int64_t most = 0;
  const auto add = [&](bool is_few, std::int64_t rows) {
    for (Factor& factor : factors) {
      factor.kernel = &choose(*factor.weight, is_few, ctx.activations());
    }
    most = std::max(most, multiply_scratch_bytes(ctx, factors, rows, k_size));
  };
  add(true, few);
  if (has_many) add(false, m_size);
  return most;
}

// Whether few and many tokens have the same kernel. Then one pass over the weight serves both.
bool same_for_all(const Weight& weight, Activations activations) {
  return &choose(weight, true, activations) == &choose(weight, false, activations);
}

// Calls run(args, few) for the rows that count as few, and for the others; once if `same`.
template <typename Args, typename Run>
const char* run_by_rows(const Args& args, bool same, const Run& run) {
  const std::int64_t m_size = Rows(args.out).rows();
  if (args.fixed_rows < 0 || same) return run(args, m_size <= kFewM);
  const char* kernel = "";
  const auto run_rows = [&](std::int64_t begin, std::int64_t end, bool few) {
    if (begin == end && m_size > 0) return;
    Args part = args;
    part.x = args.x.slice(0, begin, end);
    part.out = args.out.slice(0, begin, end);
    if constexpr (requires { args.residual; }) {
      if (args.residual.defined()) part.residual = args.residual.slice(0, begin, end);
    }
    kernel = run(part, few);
  };
  run_rows(args.fixed_rows, m_size, false);
  run_rows(0, args.fixed_rows, true);
  return kernel;
}

}  // namespace

std::int64_t linear_scratch_bytes(Context& ctx, const LinearArgs& args) {
  Factor factor{&args.weight, nullptr, {}};
  return most_scratch_bytes(ctx, args.x, args.fixed_rows, std::span(&factor, 1));
}

std::int64_t gated_linear_scratch_bytes(Context& ctx, const GatedLinearArgs& args) {
  Factor factors[] = {{&args.gate, nullptr, {}}, {&args.up, nullptr, {}}};
  return most_scratch_bytes(ctx, args.x, args.fixed_rows, factors);
}

const char* linear(Context& ctx, const LinearArgs& args) {
  const bool same = same_for_all(args.weight, ctx.activations());
  return run_by_rows(args, same, [&](const LinearArgs& part, bool few) {
    const LinearKernel& kernel = choose(part.weight, few, ctx.activations());
    Factor factor{&part.weight, &kernel, {}};
    multiply(ctx, part.x, std::span(&factor, 1), Epilogue(part));
    return kernel.name;
  });
}

const char* gated_linear(Context& ctx, const GatedLinearArgs& args) {
  const bool same =
      same_for_all(args.gate, ctx.activations()) && same_for_all(args.up, ctx.activations());
  return run_by_rows(args, same, [&](const GatedLinearArgs& part, bool few) {
    const LinearKernel& gate = choose(part.gate, few, ctx.activations());
    const LinearKernel& up = choose(part.up, few, ctx.activations());
    Factor factors[] = {{&part.gate, &gate, {}}, {&part.up, &up, {}}};
    multiply(ctx, part.x, factors, Epilogue(part));
    return gate.name == up.name ? gate.name : "cpu.mixed";
  });
}

}  // namespace tessera::cpu
