// LayerNorm and RMSNorm in one pass over memory: a row is read once, 16 bytes at a time, stays in
// the registers of a team of warps, and is written once.
//
//   row     | piece 0 | piece 1 | ... | piece t | ...        a piece: 16 bytes, 8 halves or 4
//   floats thread       0         1              t                  takes pieces t, t + team, ...
//
//   block   team 0: row i | team 1: row i + 1 | ...          small rows: several teams to a block
//
// All loads of a thread (x, residuals, weight, bias) are started before the first is used, and
// those of a team's next row before the sums over this one, which cost a barrier each.
#include "cuda/norm_registers.h"

#include <algorithm>
#include <cstdint>

#include "core/rows.h"
#include "core/type_switch.h"
#include "cuda/block_reduce.cuh"
#include "cuda/element.cuh"
#include "cuda/launch.h"
#include "cuda/piece.cuh"
#include "cuda/state.h"

namespace tessera::cuda {
namespace {

constexpr int kMaxResiduals = 3;
constexpr int kMaxWidth = 16384;
constexpr int kMaxThreads = 512;  // so that each may have 128 registers
constexpr int kMaxWarps = kMaxThreads / kWarp;

// Rows that lie evenly spaced.
struct EvenRows {
  char* data;
  std::int64_t step;  // bytes

  explicit EvenRows(const Tensor& tensor)
      : data(tensor.ptr<char>()), step(Rows(tensor).step_bytes()) {}
  template <typename T>
  __device__ T* row(std::int64_t i) const {
    return reinterpret_cast<T*>(data + i * step);
  }
};

struct NormCall {
  EvenRows x, residuals[kMaxResiduals], sum, out;
  const void *weight, *bias;  // of x's dtype; the bias may be null
  std::int64_t rows;
  int width, n_residuals, team_warps;
  float eps;
  bool centred;
};

// The sum over a team, for each of its threads. `of_warp` is not used for another sum before the
// next barrier.
__device__ float team_sum(float value, float* of_warp, int team_warps) {
  value = warp_reduce(value, Sum());
  if (team_warps == 1) return value;
  const auto warp = static_cast<int>(threadIdx.x) / kWarp;
  const auto lane = static_cast<int>(threadIdx.x) % kWarp;
  if (lane == 0) of_warp[warp] = value;
  __syncthreads();
  const float* of_team = of_warp + warp / team_warps * team_warps;
  return warp_reduce(lane < team_warps ? of_team[lane] : 0.f, Sum());
}

// What one thread holds of a row: pieces thread, thread + team, ...
template <typename T, int kPieces>
struct Share {
  static constexpr int kSize = Piece<T>::kSize;

  int begin, step, end;  // elements: its first piece, from one to the next, the row's width
  Piece<T> pieces[kPieces] = {};

  __device__ int at(int p) const { return begin + p * step; }
  __device__ bool has(int p) const { return at(p) < end; }

  // fn(p) for each piece there is.
  template <typename F>
  __device__ void for_each(F&& fn) const {
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      if (has(p)) fn(p);
    }
  }
  __device__ void load(const T* row, Piece<T> (&to)[kPieces]) const {
    for_each([&](int p) { to[p] = load_piece(row + at(p)); });
  }
  __device__ void add(const Piece<T> (&other)[kPieces]) {
    for_each([&](int p) { pieces[p].set([&](int i) { return pieces[p][i] + other[p][i]; }); });
  }
  // The sum of fn(element).
  template <typename F>
  __device__ float sum(F&& fn) const {
    float total = 0;
    for_each([&](int p) {
#pragma unroll
      for (int i = 0; i < kSize; ++i) total += fn(pieces[p][i]);
    });
    return total;
  }
};

// How a kernel works, by the pieces of a thread and the residuals it is made for (none, one, or up
// to three). What the numbers are is measured (docs/results/h200/elementwise.md).
struct Way {
  // The loads of a team's next row are on their way while it works on this one: blocks are as many
  // as run at once. With more to load than this, a row's own loads are enough to wait with, and
  // the registers are better spent on more of them at once.
  bool next_row;
  bool early_vectors;   // weight and bias are loaded with x, not when they are needed
  int threads_at_once;  // of a multiprocessor, with its 65536 registers
};

constexpr Way way_of(int pieces, int residuals) {
  return {.next_row = pieces * (1 + residuals) <= 4,
          .early_vectors = pieces <= 2,
          .threads_at_once = pieces >= 2 && residuals > 0 ? kMaxThreads : 2 * kMaxThreads};
}

// What the compiler is told of a block. Where the next row is not loaded ahead: more threads than
// any block has, which leaves 80 registers, so that three blocks of 256 fit.
constexpr int bound_threads(const Way& way) { return way.next_row ? kMaxThreads : 768; }
constexpr int least_blocks(const Way& way) {
  return way.next_row ? way.threads_at_once / kMaxThreads : 1;
}

// x and the residuals of a row, as loaded.
template <typename T, int kPieces, int kResiduals>
struct Loaded {
  static constexpr int kTensors = 1 + kResiduals;
  Piece<T> of[kTensors][kPieces];

  __device__ void load(const NormCall& call, std::int64_t row, const Share<T, kPieces>& share) {
    share.load(call.x.template row<const T>(row), of[0]);
#pragma unroll
    for (int r = 1; r < kTensors; ++r) {
      if (r <= call.n_residuals) {
        share.load(call.residuals[r - 1].template row<const T>(row), of[r]);
      }
    }
  }
  // Their sum, each partial sum rounded.
  __device__ void add_up(const NormCall& call, Share<T, kPieces>& share) const {
#pragma unroll
    for (int p = 0; p < kPieces; ++p) share.pieces[p] = of[0][p];
#pragma unroll
    for (int r = 1; r < kTensors; ++r) {
      if (r <= call.n_residuals) share.add(of[r]);
    }
  }
};

// The same without anything held: one tensor after the other.
template <typename T, int kPieces, int kResiduals>
__device__ void load_and_add(const NormCall& call, std::int64_t row, Share<T, kPieces>& share) {
  share.load(call.x.template row<const T>(row), share.pieces);
  if constexpr (kResiduals > 0) {
#pragma unroll 1
    for (int r = 0; r < call.n_residuals; ++r) {
      Piece<T> residual[kPieces];
      share.load(call.residuals[r].template row<const T>(row), residual);
      share.add(residual);
    }
  }
}

template <typename T, int kPieces, int kResiduals>
__global__ void __launch_bounds__(bound_threads(way_of(kPieces, kResiduals)),
                                  least_blocks(way_of(kPieces, kResiduals)))
    norm_teams(NormCall call) {
  // Written before a barrier and read behind it. Of the squares, which may have no other barrier
  // between them, two are in use in turns.
  __shared__ float totals[kMaxWarps], squares_of[2][kMaxWarps];
  constexpr Way kWay = way_of(kPieces, kResiduals);
  constexpr bool kLoadsAll = kPieces <= 2 || kWay.next_row;  // x and all residuals at once
  constexpr bool kEarlyVectors = kWay.early_vectors;
  const int team_threads = call.team_warps * kWarp;
  const int teams = static_cast<int>(blockDim.x) / team_threads;
  const int team = static_cast<int>(threadIdx.x) / team_threads;
  const int thread = static_cast<int>(threadIdx.x) % team_threads;
  const std::int64_t step = std::int64_t{gridDim.x} * teams;
  const auto* const weight = static_cast<const T*>(call.weight);
  const auto* const bias = static_cast<const T*>(call.bias);
  const float count = static_cast<float>(call.width);

  std::int64_t row = std::int64_t{blockIdx.x} * teams + team;
  Share<T, kPieces> share{.begin = thread * Piece<T>::kSize,
                          .step = team_threads * Piece<T>::kSize,
                          .end = row < call.rows ? call.width : 0};
  Loaded<T, kLoadsAll ? kPieces : 1, kResiduals> loaded;
  Piece<T> weights[kPieces], biases[kPieces];
  const auto load_vectors = [&] {
    share.load(weight, weights);
    if (bias != nullptr) share.load(bias, biases);
  };
  if constexpr (kWay.next_row) {  // they stay for all rows
    loaded.load(call, row, share);
    if constexpr (kEarlyVectors) load_vectors();
  }
  // A team whose rows are done still comes to the barriers: `first` is the block's.
  int turn = 0;
  for (std::int64_t first = row - team; first < call.rows; first += step, row += step, turn ^= 1) {
    share.end = row < call.rows ? call.width : 0;
    if constexpr (kLoadsAll) {
      if constexpr (!kWay.next_row) {
        loaded.load(call, row, share);
        if constexpr (kEarlyVectors) load_vectors();
      }
      loaded.add_up(call, share);
      if (kWay.next_row && row + step < call.rows) loaded.load(call, row + step, share);
    } else {
      load_and_add<T, kPieces, kResiduals>(call, row, share);
    }
    if constexpr (kResiduals > 0) {
      T* sum = call.sum.template row<T>(row);
      share.for_each([&](int p) { store_piece(sum + share.at(p), share.pieces[p]); });
    }

    float mean = 0;
    if (call.centred) {
      mean = team_sum(share.sum([](float s) { return s; }), totals, call.team_warps) / count;
    }
    const float squares = share.sum([&](float s) { return (s - mean) * (s - mean); });
    const float variance = team_sum(squares, squares_of[turn], call.team_warps) / count;
    const float scale = 1.f / sqrtf(variance + call.eps);

    T* out = call.out.template row<T>(row);
    share.for_each([&](int p) {
      if constexpr (!kEarlyVectors) {
        weights[p] = load_piece(weight + share.at(p));
        if (bias != nullptr) biases[p] = load_piece(bias + share.at(p));
      }
      Piece<T>& piece = share.pieces[p];
      piece.set([&](int i) {
        const float normal = (piece[i] - mean) * scale * weights[p][i];
        return bias != nullptr ? normal + biases[p][i] : normal;
      });
      store_piece(out + share.at(p), piece);
    });
  }
}

// ---- the launch ---------------------------------------------------------------------------------

struct TeamPlan {
  int pieces, warps;
};

// Few rows: the shortest way is one piece for each thread. Many: two, so that a multiprocessor has
// more bytes on their way. More where a row would not fit otherwise.
TeamPlan plan_teams(std::int64_t pieces_of_row, std::int64_t rows) {
  constexpr std::int64_t kFewRows = 264;  // two blocks for each multiprocessor of a large GPU
  int pieces = rows <= kFewRows ? 1 : 2;
  if (pieces_of_row <= 2 * kWarp) pieces = 1;
  while (pieces_of_row > pieces * kMaxThreads) pieces *= 2;
  return {pieces, static_cast<int>((pieces_of_row + pieces * kWarp - 1) / (pieces * kWarp))};
}

template <typename T, int kPieces, int kResiduals>
void launch_kernel(const Launch& launch, Grid grid, int multiprocessors, const NormCall& call) {
  constexpr Way kWay = way_of(kPieces, kResiduals);
  const auto threads = static_cast<int>(grid.threads.x);
  const std::int64_t at_once = std::int64_t{multiprocessors} * (kWay.threads_at_once / threads);
  if (kWay.next_row) grid.blocks = std::min(grid.blocks, at_once);
  launch(norm_teams<T, kPieces, kResiduals>, grid, call);
}

template <typename T, int kPieces>
void launch_teams(const Launch& launch, const Grid& grid, int multiprocessors,
                  const NormCall& call) {
  if (call.n_residuals == 0) {
    launch_kernel<T, kPieces, 0>(launch, grid, multiprocessors, call);
  } else if (call.n_residuals == 1) {
    launch_kernel<T, kPieces, 1>(launch, grid, multiprocessors, call);
  } else {
    launch_kernel<T, kPieces, kMaxResiduals>(launch, grid, multiprocessors, call);
  }
}

}  // namespace

bool fits_registers(const NormArgs& args) {
  const std::int64_t width = args.x.size(-1);
  if (width == 0 || width > kMaxWidth || width * size_of(args.x.dtype) % kPieceBytes != 0) {
    return false;
  }
  const auto loads_like_x = [&](const Tensor& vector) {
    return !vector.defined() || (vector.dtype == args.x.dtype && on_piece(vector.data));
  };
  const auto rows_fit = [](const Tensor& tensor) {
    return rows_on_pieces(tensor) && Rows(tensor).evenly_spaced();
  };
  return loads_like_x(args.weight) && loads_like_x(args.bias) && rows_fit(args.x) &&
         rows_fit(args.residuals[0]) && rows_fit(args.residuals[1]) &&
         rows_fit(args.residuals[2]) && rows_fit(args.sum) && rows_fit(args.out);
}

void norm_in_registers(Context& ctx, const char* op, const NormArgs& args, bool centred) {
  const std::int64_t rows = Rows(args.x).rows(), width = args.x.size(-1);
  int n_residuals = 0;
  for (const Tensor& residual : args.residuals) n_residuals += residual.defined();
  const TeamPlan plan = plan_teams(width * size_of(args.x.dtype) / kPieceBytes, rows);
  const NormCall call{.x = EvenRows(args.x),
                      .residuals = {EvenRows(args.residuals[0]), EvenRows(args.residuals[1]),
                                    EvenRows(args.residuals[2])},
                      .sum = EvenRows(args.sum),
                      .out = EvenRows(args.out),
                      .weight = args.weight.data,
                      .bias = args.bias.data,
                      .rows = rows,
                      .width = static_cast<int>(width),
                      .n_residuals = n_residuals,
                      .team_warps = plan.warps,
                      .eps = args.eps,
                      .centred = centred};
  // At least four warps to a block, as a multiprocessor takes a limited number of blocks.
  const int teams = rows == 1 || plan.warps >= 4 ? 1 : 4 / plan.warps;
  const Grid grid{.blocks = (rows + teams - 1) / teams,
                  .threads = static_cast<unsigned>(teams * plan.warps * kWarp)};
  const int multiprocessors = ctx.cuda_state().limits().multiprocessors;
  const Launch launch(ctx, op);
  with_float_type(args.x.dtype, [&](auto type) {
    using T = decltype(type);
    if (plan.pieces == 1) return launch_teams<T, 1>(launch, grid, multiprocessors, call);
    if (plan.pieces == 2) return launch_teams<T, 2>(launch, grid, multiprocessors, call);
    if (plan.pieces == 4) return launch_teams<T, 4>(launch, grid, multiprocessors, call);
    if constexpr (sizeof(T) == 4) launch_teams<T, 8>(launch, grid, multiprocessors, call);
  });
}

}  // namespace tessera::cuda
