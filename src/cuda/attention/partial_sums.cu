// Partial results of attention, merged row by row (cpu/attention/merge.h has the algebra): a warp
// for each head of a row, a lane for every 32nd element. Each element is read and written once, so
// memory is the limit.
#include "cuda/attention/partial_sums.h"

#include <cstdint>

#include "core/type_switch.h"
#include "cuda/runtime/launch.h"
#include "cuda/tile/element.cuh"

namespace tessera::cuda {
namespace {

constexpr int kPartialLanes = 32, kPartialWarps = 8;
constexpr int kPartialThreads = kPartialLanes * kPartialWarps;

// [batch, rows, heads, dim], any strides, dim contiguous.
struct PartialHeads {
  std::int64_t strides[3];

  explicit PartialHeads(const Tensor& t) : strides{t.strides[0], t.strides[1], t.strides[2]} {}
  __device__ std::int64_t at(std::int64_t b, std::int64_t row, std::int64_t h) const {
    return b * strides[0] + row * strides[1] + h * strides[2];
  }
};
// [batch, heads, rows]
struct PartialRows {
  std::int64_t strides[3];

  explicit PartialRows(const Tensor& t) : strides{t.strides[0], t.strides[1], t.strides[2]} {}
  __device__ std::int64_t at(std::int64_t b, std::int64_t row, std::int64_t h) const {
    return b * strides[0] + h * strides[1] + row * strides[2];
  }
};

struct PartialShape {
  std::int64_t items, rows, heads, dim;  // items: batch * rows * heads

  explicit PartialShape(const Tensor& t)
      : items(t.shape[0] * t.shape[1] * t.shape[2]),
        rows(t.shape[1]),
        heads(t.shape[2]),
        dim(t.shape[3]) {}
};

// Calls visit(batch, row, head) for each item of this warp.
template <typename F>
__device__ void for_each_head(const PartialShape& shape, F&& visit) {
  const std::int64_t warps = std::int64_t{gridDim.x} * kPartialWarps;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kPartialWarps + threadIdx.x / kPartialLanes;
       i < shape.items; i += warps) {
    const std::int64_t token = i / shape.heads;
    visit(token / shape.rows, token % shape.rows, i % shape.heads);
  }
}

template <typename T>
__global__ void __launch_bounds__(kPartialThreads)
    merge_heads(PartialShape shape, const T* part, PartialHeads part_heads, const float* part_lse,
                PartialRows part_rows, float* out, PartialHeads out_heads, float* lse,
                PartialRows rows) {
  const int lane = static_cast<int>(threadIdx.x) % kPartialLanes;
  for_each_head(shape, [&](std::int64_t b, std::int64_t row, std::int64_t h) {
    const float theirs = part_lse[part_rows.at(b, row, h)];
    if (theirs == -INFINITY) return;  // no key was seen
    float& kept = lse[rows.at(b, row, h)];
    const float ours = kept;
    __syncwarp();  // all lanes have read it
    // Relative to the larger one, no exponential overflows, and one of the two is 1.
    const float largest = fmaxf(ours, theirs);
    const float our_sum = expf(ours - largest), their_sum = expf(theirs - largest);
    const float sum = our_sum + their_sum;
    const float a = our_sum / sum, c = their_sum / sum;
    const T* from = part + part_heads.at(b, row, h);
    float* to = out + out_heads.at(b, row, h);
    for (std::int64_t d = lane; d < shape.dim; d += kPartialLanes) {
      to[d] = a * to[d] + c * to_f32(from[d]);
    }
    if (lane == 0) kept = largest + logf(sum);
  });
}

template <typename T>
__global__ void __launch_bounds__(kPartialThreads)
    add_heads(PartialShape shape, const T* part, PartialHeads part_heads, float* sum,
              PartialHeads sum_heads) {
  const int lane = static_cast<int>(threadIdx.x) % kPartialLanes;
  for_each_head(shape, [&](std::int64_t b, std::int64_t row, std::int64_t h) {
    const T* from = part + part_heads.at(b, row, h);
    float* to = sum + sum_heads.at(b, row, h);
    for (std::int64_t d = lane; d < shape.dim; d += kPartialLanes) to[d] += to_f32(from[d]);
  });
}

template <typename T>
__global__ void __launch_bounds__(kPartialThreads)
    fill_elements(T* to, std::int64_t count, float value) {
  const std::int64_t step = std::int64_t{gridDim.x} * kPartialThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kPartialThreads + threadIdx.x; i < count;
       i += step) {
    to[i] = from_f32<T>(value);
  }
}

Grid warps_for(const PartialShape& shape) {
  return {.blocks = (shape.items + kPartialWarps - 1) / kPartialWarps, .threads = kPartialThreads};
}

}  // namespace

void merge_partial(Context& ctx, const Tensor& out, const Tensor& lse, const Tensor& part,
                   const Tensor& part_lse) {
  const PartialShape shape(part);
  if (shape.items == 0) return;
  const Launch launch(ctx, "merge_partial");
  with_float_type(part.dtype, [&](auto type) {
    using T = decltype(type);
    launch(merge_heads<T>, warps_for(shape), shape, part.ptr<const T>(), PartialHeads(part),
           part_lse.ptr<const float>(), PartialRows(part_lse), out.ptr<float>(), PartialHeads(out),
           lse.ptr<float>(), PartialRows(lse));
  });
}

void add_partial(Context& ctx, const Tensor& part, const Tensor& sum) {
  const PartialShape shape(part);
  if (shape.items == 0) return;
  const Launch launch(ctx, "add_partial");
  with_float_type(part.dtype, [&](auto type) {
    using T = decltype(type);
    launch(add_heads<T>, warps_for(shape), shape, part.ptr<const T>(), PartialHeads(part),
           sum.ptr<float>(), PartialHeads(sum));
  });
}

void fill(Context& ctx, const Tensor& tensor, float value) {
  const std::int64_t count = tensor.numel();
  if (count == 0) return;
  const Launch launch(ctx, "fill");
  with_float_type(tensor.dtype, [&](auto type) {
    using T = decltype(type);
    launch(fill_elements<T>,
           {.blocks = (count + kPartialThreads - 1) / kPartialThreads, .threads = kPartialThreads},
           tensor.ptr<T>(), count, value);
  });
}

}  // namespace tessera::cuda
