// Step 1: the formula, three kernels, every score in memory.
//
//            key                                 dim
//         +--------+                          +--------+
//   query | scores |  -> softmax of a row ->  |  out   |   a thread computes one number
//         +--------+                          +--------+
//
// A thread reads all it needs from memory, number by number: 128 loads for 64 multiply-adds.
#include <cmath>

#include "cuda/runtime/launch.h"
#include "learn.h"

namespace tessera::learn {
namespace {

// `row` counts the queries of all heads. One thread for each key.
__global__ void __launch_bounds__(kThreads) multiply_keys(Problem p) {
  const int strips = (p.tokens + kThreads - 1) / kThreads;
  const int row = static_cast<int>(blockIdx.x) / strips, head = row / p.tokens;
  const int key = static_cast<int>(blockIdx.x) % strips * kThreads + static_cast<int>(threadIdx.x);
  if (key >= p.tokens) return;
  const __half* q = p.q + std::int64_t{row} * kDim;
  const __half* k = p.k + (std::int64_t{head} * p.tokens + key) * kDim;
  float sum = 0.f;
  for (int d = 0; d < kDim; ++d) sum += __half2float(q[d]) * __half2float(k[d]);
  p.scores[std::int64_t{row} * p.tokens + key] = sum * 0.125f;  // 1 / sqrt(64)
}

// One warp for each row. The largest score is subtracted first, so that no exponential overflows.
__global__ void __launch_bounds__(kThreads) softmax(Problem p) {
  const std::int64_t row = std::int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (row >= std::int64_t{p.heads} * p.tokens) return;
  float* scores = p.scores + row * p.tokens;
  float largest = -INFINITY, sum = 0.f;
  for (int key = lane; key < p.tokens; key += 32) largest = fmaxf(largest, scores[key]);
  for (int other = 16; other > 0; other /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, other));
  }
  for (int key = lane; key < p.tokens; key += 32) sum += expf(scores[key] - largest);
  for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, other);
  for (int key = lane; key < p.tokens; key += 32) scores[key] = expf(scores[key] - largest) / sum;
}

// One thread for each number of the output: two rows of 64 for a block.
__global__ void __launch_bounds__(kThreads) multiply_values(Problem p) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t row = at / kDim, head = row / p.tokens;
  if (row >= std::int64_t{p.heads} * p.tokens) return;
  const float* weights = p.scores + row * p.tokens;
  const __half* v = p.v + head * p.tokens * kDim + at % kDim;
  float sum = 0.f;
  for (int key = 0; key < p.tokens; ++key) sum += weights[key] * __half2float(v[key * kDim]);
  p.out[at] = __float2half(sum);
}

}  // namespace

void run_naive(Context& ctx, const Problem& p) {
  const cuda::Launch launch(ctx, "learn: naive");
  const std::int64_t rows = std::int64_t{p.heads} * p.tokens;
  launch(multiply_keys,
         {.blocks = rows * ((p.tokens + kThreads - 1) / kThreads), .threads = kThreads}, p);
  launch(softmax, {.blocks = (rows + 3) / 4, .threads = kThreads}, p);
  launch(multiply_values, {.blocks = (rows + 1) / 2, .threads = kThreads}, p);
}

}  // namespace tessera::learn
