// LayerNorm and RMSNorm in one pass over memory: a row is read once, 16 bytes at a time, stays in
// the registers of a team of warps, and is written once.
//
//   row     | piece 0 | piece 1 | ... | piece t | ...        a piece: 16 bytes, 8 halves or 4
//   floats thread       0         1              t                  takes pieces t, t + team, ...
//
//   block   team 0: row i | team 1: row i + 1 | ...          small rows: several teams to a block
//
// All loads of a thread (x, residuals, weight, bias) are started before the first is used; what is
// left of the time is the two sums over the team, one barrier each.
#include "cuda/norm_registers.h"

#include <cstdint>

#include "core/rows.h"
#include "core/type_switch.h"
#include "cuda/block_reduce.cuh"
#include "cuda/element.cuh"
#include "cuda/launch.h"
#include "cuda/piece.cuh"

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

// Few pieces: all loads of a thread come before their first use. Many would not fit into its
// registers, and have each other to wait with.
constexpr bool loads_ahead(int pieces) { return pieces <= 2; }

// x + residuals, each partial sum rounded, and written.
template <typename T, int kPieces>
__device__ void add_residuals(const NormCall& call, std::int64_t row, Share<T, kPieces>& share) {
  const auto load = [&](int r, Piece<T>(&to)[kPieces]) {
    share.load(call.residuals[r].template row<const T>(row), to);
  };
  Piece<T> first[kPieces];
  load(0, first);
  if constexpr (loads_ahead(kPieces)) {
    Piece<T> second[kPieces], third[kPieces];
    if (call.n_residuals > 1) load(1, second);
    if (call.n_residuals > 2) load(2, third);
    share.add(first);
    if (call.n_residuals > 1) share.add(second);
    if (call.n_residuals > 2) share.add(third);
  } else {
    share.add(first);
#pragma unroll 1
    for (int r = 1; r < call.n_residuals; ++r) {
      load(r, first);
      share.add(first);
    }
  }
  T* sum = call.sum.template row<T>(row);
  share.for_each([&](int p) { store_piece(sum + share.at(p), share.pieces[p]); });
}

template <typename T, int kPieces, bool kResiduals>
__global__ void __launch_bounds__(kMaxThreads) norm_teams(NormCall call) {
  __shared__ float totals[kMaxWarps], squares_of[kMaxWarps];
  const int team_threads = call.team_warps * kWarp;
  const int teams = static_cast<int>(blockDim.x) / team_threads;
  const int team = static_cast<int>(threadIdx.x) / team_threads;
  const int thread = static_cast<int>(threadIdx.x) % team_threads;

  for (std::int64_t first = std::int64_t{blockIdx.x} * teams; first < call.rows;
       first += std::int64_t{gridDim.x} * teams) {
    const std::int64_t row = first + team;
    const bool has_row = row < call.rows;  // who has none still comes to the barriers
    Share<T, kPieces> share{.begin = thread * Piece<T>::kSize,
                            .step = team_threads * Piece<T>::kSize,
                            .end = has_row ? call.width : 0};
    const auto* const weight = static_cast<const T*>(call.weight);
    const auto* const bias = static_cast<const T*>(call.bias);
    Piece<T> weights[kPieces], biases[kPieces];
    share.load(call.x.template row<const T>(row), share.pieces);
    if constexpr (loads_ahead(kPieces)) {
      share.load(weight, weights);
      if (bias != nullptr) share.load(bias, biases);
    }
    if constexpr (kResiduals) add_residuals(call, row, share);

    const float count = static_cast<float>(call.width);
    float mean = 0;
    if (call.centred) {
      mean = team_sum(share.sum([](float s) { return s; }), totals, call.team_warps) / count;
    }
    const float squares = share.sum([&](float s) { return (s - mean) * (s - mean); });
    const float variance = team_sum(squares, squares_of, call.team_warps) / count;
    const float scale = 1.f / sqrtf(variance + call.eps);

    T* out = call.out.template row<T>(row);
    share.for_each([&](int p) {
      if constexpr (!loads_ahead(kPieces)) {
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
    __syncthreads();  // whoever still reads the sums
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
  const bool one_each = rows <= kFewRows || pieces_of_row <= 2 * kWarp;
  int pieces = one_each ? 1 : 2;
  while (pieces_of_row > pieces * kMaxThreads) pieces *= 2;
  return {pieces, static_cast<int>((pieces_of_row + pieces * kWarp - 1) / (pieces * kWarp))};
}

template <typename T, int kPieces>
void launch_teams(const Launch& launch, const Grid& grid, const NormCall& call) {
  if (call.n_residuals > 0) {
    launch(norm_teams<T, kPieces, true>, grid, call);
  } else {
    launch(norm_teams<T, kPieces, false>, grid, call);
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
  const TeamPlan plan = plan_teams(width * size_of(args.x.dtype) / kPieceBytes, rows);
  NormCall call{.x = EvenRows(args.x),
                .residuals = {EvenRows(args.residuals[0]), EvenRows(args.residuals[1]),
                              EvenRows(args.residuals[2])},
                .sum = EvenRows(args.sum),
                .out = EvenRows(args.out),
                .weight = args.weight.data,
                .bias = args.bias.data,
                .rows = rows,
                .width = static_cast<int>(width),
                .n_residuals = 0,
                .team_warps = plan.warps,
                .eps = args.eps,
                .centred = centred};
  for (const Tensor& residual : args.residuals) call.n_residuals += residual.defined();
  // At least four warps to a block, as a multiprocessor takes a limited number of blocks.
  const int teams = rows == 1 || plan.warps >= 4 ? 1 : 4 / plan.warps;
  const Grid grid{.blocks = (rows + teams - 1) / teams,
                  .threads = static_cast<unsigned>(teams * plan.warps * kWarp)};
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
