// Converts the sums of dQ, which lie in the warpgroups' register order, to d_q.
#include "core/half.h"
#include "cuda/attention/backward/hopper/call.h"
#include "cuda/runtime/launch.h"
#include "cuda/tile/pack.cuh"

namespace tessera::cuda::backward {
namespace {

constexpr int kThreads = 256;

// A block has a piece of 64 x 64. A thread takes eight columns of two rows, which lie in 64 bytes;
// eight threads fill 128 bytes of each row.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    finish(AttentionCall call, HeadRows d_q, int queries, int query_tiles, const float* sums,
           std::int64_t pieces) {
  const int thread = static_cast<int>(threadIdx.x), eight = thread % 8, pair = thread / 8;
  const int warp = pair / 8, line = pair % 8;  // rows 16 warp + line, and 8 further
  for (std::int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const int half = static_cast<int>(piece % 2);
    const std::int64_t tile = piece / 2 % query_tiles, head = piece / 2 / query_tiles;
    const bool wide = queries == 64;  // the halves of a tile are columns, else rows
    const std::int64_t first = tile * queries + (wide ? 0 : 64 * half) + 16 * warp + line;
    const int column = (wide ? 64 * half : 0) + 8 * eight;
    if (column >= call.dim) continue;
    const auto* from = reinterpret_cast<const float4*>(sums + piece * kPieceFloats +
                                                       place_in_piece(32 * warp + 4 * line, eight));
    float4 parts[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) parts[i] = __ldcs(from + i);
    const auto word = [&](float a, float b) { return pack(call.scale * a, call.scale * b, T()); };
    const uint4 upper = make_uint4(word(parts[0].x, parts[0].y), word(parts[1].x, parts[1].y),
                                   word(parts[2].x, parts[2].y), word(parts[3].x, parts[3].y));
    const uint4 lower = make_uint4(word(parts[0].z, parts[0].w), word(parts[1].z, parts[1].w),
                                   word(parts[2].z, parts[2].w), word(parts[3].z, parts[3].w));
    T* to = d_q.at<T>(head / call.heads, first, head % call.heads) + column;
    if (first < call.n_q) *reinterpret_cast<uint4*>(to) = upper;
    if (first + 8 < call.n_q) *reinterpret_cast<uint4*>(to + 8 * d_q.row_stride) = lower;
  }
}

}  // namespace

void finish_queries(Context& ctx, const AttentionCall& call, const HeadRows& d_q, int queries,
                    int query_tiles, const float* sums) {
  const std::int64_t pieces = call.sequences * call.heads * query_tiles * 2;
  const Launch launch(ctx, "attention_backward (finish)");
  const Grid grid{.blocks = pieces, .threads = dim3(kThreads)};
  if (call.dtype == DType::f16) {
    launch(finish<Half>, grid, call, d_q, queries, query_tiles, sums, pieces);
  } else {
    launch(finish<BFloat16>, grid, call, d_q, queries, query_tiles, sums, pieces);
  }
}

}  // namespace tessera::cuda::backward
