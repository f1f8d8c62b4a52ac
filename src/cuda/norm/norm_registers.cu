// LayerNorm and RMSNorm in one pass over memory: a row is read once, 16 bytes at a time, stays in
// the registers of a team of warps, and is written once.
//
//   row     | piece 0 | piece 1 | ... | piece t | ...        a piece: 8 halves or 4 floats
//   thread       0         1              t                  takes pieces t, t + team, ...
//
//   block   team 0: row i | team 1: row i + 1 | ...          small rows: several teams to a block
//
// All loads of a thread (x, residuals, weight, bias) are started before the first is used. There
// are enough blocks for all rows: a multiprocessor runs several at once, so that some load while
// others compute. (Loading a team's next row ahead, in as many blocks as run at once, was slower.)
#include "cuda/norm/norm_registers.h"

#include <algorithm>
#include <cstdint>

#include "core/philox.h"
#include "core/rows.h"
#include "core/type_switch.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/state.h"
#include "cuda/tile/block_reduce.cuh"
#include "cuda/tile/element.cuh"
#include "cuda/tile/grid_dependency.cuh"
#include "cuda/tile/piece.cuh"

namespace tessera::cuda {
namespace {

constexpr int kMaxResiduals = 3;
constexpr int kMaxWidth = 16384;
constexpr int kMaxThreads = 512;  // so that each may have 128 registers
constexpr int kMaxWarps = kMaxThreads / kWarp;
constexpr int kBlockWarps = 4;

// Evenly spaced rows.
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
  std::uint64_t seed;
  std::uint32_t drop_below;  // words of Philox below it drop; 0: none
  float kept, inverse_width;

  // total / width, rounded as a division rounds it in all but the rarest cases: the mean of a row
  // of equal elements is that element.
  __device__ float mean_of(float total) const {
    const float mean = total * inverse_width;
    return fmaf(fmaf(-mean, static_cast<float>(width), total), inverse_width, mean);
  }
};

// The sum over a team, for each of its threads. `of_warp` is not used for another sum before the
// next barrier.
__device__ float team_sum(float value, float* of_warp, int team_warps) {
  value = warp_reduce(value, Sum());
  if (team_warps == 1) return value;
  float* const of_team = of_warp + static_cast<int>(threadIdx.y) * team_warps;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kMaxWarps;
  if (threadIdx.x % kWarp == 0) of_team[warp] = value;
  __syncthreads();
  value = lane < team_warps ? of_team[lane] : 0.f;  // both halves of a warp do the same
#pragma unroll
  for (int distance = kMaxWarps / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}
static_assert(kMaxWarps == kWarp / 2);

// What one thread holds of a row: pieces thread, thread + team, ... Beyond the row's end a piece is
// zeros; arithmetic goes over all of them, without branches.
template <typename T, int kPieces>
struct Share {
  static constexpr int kSize = Piece<T>::kSize;

  int begin, step, end;  // elements: its first piece, from one to the next, the row's width
  Piece<T> pieces[kPieces] = {};

  __device__ int at(int p) const { return begin + p * step; }
  __device__ bool has(int p) const { return at(p) < end; }

  __device__ void load(const T* row, Piece<T> (&to)[kPieces]) const {
#pragma unroll
    for (int p = 0; p < kPieces; ++p) to[p] = load(row, p);
  }
  __device__ Piece<T> load(const T* row, int p) const {
    return has(p) ? load_piece(row + at(p)) : Piece<T>();
  }
  __device__ void store(T* row) const {
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      if (has(p)) store_piece(row + at(p), pieces[p]);
    }
  }
  __device__ void add(const Piece<T> (&other)[kPieces]) {
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      pieces[p].set([&](int i) { return pieces[p][i] + other[p][i]; });
    }
  }
  // Dropout of x: a piece is one or two of the generator's four columns.
  __device__ void drop(const NormCall& call, std::int64_t row) {
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      PhiloxWords words[kSize / 4];
#pragma unroll
      for (int q = 0; q < kSize / 4; ++q) {
        words[q] = norm_dropout_words(call.seed, row, static_cast<std::uint32_t>(at(p) + 4 * q));
      }
      pieces[p].set([&](int i) {
        return words[i / 4][i % 4] < call.drop_below ? 0.f : pieces[p][i] * call.kept;
      });
    }
  }
  // The sum of fn(element) over the elements that exist.
  template <typename F>
  __device__ float sum(F&& fn) const {
    float total = 0;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      float of_piece = 0;
#pragma unroll
      for (int i = 0; i < kSize; ++i) of_piece += fn(pieces[p][i]);
      total += has(p) ? of_piece : 0.f;
    }
    return total;
  }
};

// x and the residuals of a row, each partial sum rounded. All loads are started before the first is
// used; if registers do not allow it, the loads of one tensor.
template <typename T, int kPieces, int kResiduals, bool kDrops>
__device__ void load_and_add(const NormCall& call, std::int64_t row, Share<T, kPieces>& share) {
  share.load(call.x.template row<const T>(row), share.pieces);
  if constexpr (kResiduals > 0 && kPieces <= 2) {
    Piece<T> residuals[kResiduals][kPieces];
#pragma unroll
    for (int r = 0; r < kResiduals; ++r) {
      if (r < call.n_residuals) {
        share.load(call.residuals[r].template row<const T>(row), residuals[r]);
      }
    }
    if constexpr (kDrops) share.drop(call, row);
#pragma unroll
    for (int r = 0; r < kResiduals; ++r) {
      if (r < call.n_residuals) share.add(residuals[r]);
    }
  } else if constexpr (kResiduals > 0) {
    if constexpr (kDrops) share.drop(call, row);
#pragma unroll 1
    for (int r = 0; r < call.n_residuals; ++r) {
      Piece<T> residual[kPieces];
      share.load(call.residuals[r].template row<const T>(row), residual);
      share.add(residual);
    }
  }
}

// Blocks of kMaxThreads that must fit a multiprocessor: two leave each thread 64 registers, enough
// for four pieces and their arithmetic.
constexpr int least_blocks(int pieces) { return pieces == 4 ? 2 : 1; }

// kResiduals: none, one, or up to three.
template <typename T, int kPieces, int kResiduals, bool kDrops>
__global__ void __launch_bounds__(kMaxThreads, least_blocks(kPieces)) norm_teams(NormCall call) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  // Written before a barrier and read after it. The squares have two arrays, used in turn, because
  // there may be no other barrier between uses.
  __shared__ float totals[kMaxWarps], squares_of[2][kMaxWarps];
  constexpr bool kEarlyVectors = kPieces <= 2;  // weight and bias are loaded with the row
  const auto team_threads = static_cast<int>(blockDim.x), teams = static_cast<int>(blockDim.y);
  const auto thread = static_cast<int>(threadIdx.x), team = static_cast<int>(threadIdx.y);
  const std::int64_t step = std::int64_t{gridDim.x} * teams;
  const auto* const weight = static_cast<const T*>(call.weight);
  const auto* const bias = static_cast<const T*>(call.bias);

  std::int64_t row = std::int64_t{blockIdx.x} * teams + team;
  Share<T, kPieces> share{
      .begin = thread * Piece<T>::kSize, .step = team_threads * Piece<T>::kSize, .end = call.width};
  // A team whose rows are done still takes part in the barriers: `first` is the block's.
  int turn = 0;
  for (std::int64_t first = row - team; first < call.rows; first += step, row += step, turn ^= 1) {
    if (row >= call.rows) share.end = 0;
    load_and_add<T, kPieces, kResiduals, kDrops>(call, row, share);
    Piece<T> weights[kPieces], biases[kPieces];
    if constexpr (kEarlyVectors) {
      share.load(weight, weights);
      if (bias != nullptr) share.load(bias, biases);
    }
    if constexpr (kResiduals > 0) {
      share.store(call.sum.template row<T>(row));
    }

    float mean = 0;
    if (call.centred) {
      mean = call.mean_of(team_sum(share.sum([](float s) { return s; }), totals, call.team_warps));
    }
    const float squares = share.sum([&](float s) { return (s - mean) * (s - mean); });
    const float variance = call.mean_of(team_sum(squares, squares_of[turn], call.team_warps));
    const float scale = rsqrtf(variance + call.eps);

#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      Piece<T>& piece = share.pieces[p];
      if constexpr (!kEarlyVectors) {
        weights[p] = share.load(weight, p);
        if (bias != nullptr) biases[p] = share.load(bias, p);
      }
      if (bias != nullptr) {
        piece.set([&](int i) { return (piece[i] - mean) * scale * weights[p][i] + biases[p][i]; });
      } else {
        piece.set([&](int i) { return (piece[i] - mean) * scale * weights[p][i]; });
      }
    }
    share.store(call.out.template row<T>(row));
  }
}

// ---- the launch ---------------------------------------------------------------------------------

struct TeamPlan {
  int pieces, warps;
};

// Few rows: one piece for each thread is fastest. Many rows: more pieces, so that the work that
// each thread does once for a row (sums over the team, the square root) weighs less; measured on an
// H200 (docs/notebook/elementwise.md). More still if a row would not fit otherwise.
TeamPlan plan_teams(std::int64_t pieces_of_row, std::int64_t rows) {
  constexpr std::int64_t kFewRows = 264;  // two blocks for each multiprocessor of a large GPU
  constexpr std::int64_t kManyRows = 4096;
  int pieces = rows <= kFewRows ? 1 : rows < kManyRows ? 2 : 4;
  while (pieces > 1 && pieces_of_row <= pieces * kWarp) pieces /= 2;
  while (pieces_of_row > pieces * kMaxThreads) pieces *= 2;
  return {pieces, static_cast<int>((pieces_of_row + pieces * kWarp - 1) / (pieces * kWarp))};
}

template <typename T, int kPieces>
void launch_teams(const Launch& launch, const Grid& grid, const NormCall& call) {
  if (call.drop_below > 0) {
    launch(norm_teams<T, kPieces, kMaxResiduals, true>, grid, call);
  } else if (call.n_residuals == 0) {
    launch(norm_teams<T, kPieces, 0, false>, grid, call);
  } else if (call.n_residuals == 1) {
    launch(norm_teams<T, kPieces, 1, false>, grid, call);
  } else {
    launch(norm_teams<T, kPieces, kMaxResiduals, false>, grid, call);
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
  const TeamPlan plan = plan_teams(width * size_of(args.x.dtype) / kPieceBytes,
                                   args.fixed_rows ? 1 : rows);  // planned as few rows
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
                      .centred = centred,
                      .seed = args.dropout.seed,
                      .drop_below = dropout_threshold(args.dropout.p),
                      .kept = kept_factor(args.dropout.p),
                      .inverse_width = 1.f / static_cast<float>(width)};
  // At least four warps to a block, as a multiprocessor takes a limited number of blocks.
  const int teams =
      static_cast<int>(std::min<std::int64_t>(std::max(1, kBlockWarps / plan.warps), rows));
  const Grid grid{
      .blocks = (rows + teams - 1) / teams,
      .threads = dim3(static_cast<unsigned>(plan.warps * kWarp), static_cast<unsigned>(teams)),
      .overlaps = state_of(ctx).limits().capability >= 90};
  const Launch launch(ctx, op);
  with_float_type(args.x.dtype, [&](auto type) {
    using T = decltype(type);
    if (plan.pieces == 1) return launch_teams<T, 1>(launch, grid, call);
    if (plan.pieces == 2) return launch_teams<T, 2>(launch, grid, call);
    if (plan.pieces == 4) return launch_teams<T, 4>(launch, grid, call);
    if constexpr (sizeof(T) == 4) launch_teams<T, 8>(launch, grid, call);
  });
}

}  // namespace tessera::cuda
