// Rotary position embedding: one block for each token of each batch.
//
//                pairs, 32 at a time ->
//              +---------------------------+   A thread takes one pair of every eighth head. It
//   heads, 8   |  a0 b0   a1 b1   a2 b2 ...|   computes the pair's cosine and sine once, then
//   at a time  |                           |   rotates the pair in all its heads. No other thread
//              +---------------------------+   touches these elements, so it works in place.
#include "cuda/rotary/rotary.h"

#include "core/type_switch.h"
#include "cuda/rotary/rope.cuh"
#include "cuda/runtime/launch.h"
#include "cuda/tile/element.cuh"

namespace tessera::cuda {
namespace {

constexpr int kPairs = 32;  // a warp: neighbouring threads read neighbouring elements
constexpr int kHeads = 8;

// A token's heads, [heads, dim].
template <typename T>
struct Heads {
  T* data;
  std::int64_t stride;
  __device__ T* head(std::int64_t h) const { return data + h * stride; }
};

struct RotaryShape {
  std::int64_t batches, tokens, heads, dim, pairs;
  std::int64_t x_strides[3], out_strides[3], position_stride;  // position_stride: of a batch
  const float* inv_freq;
  const void* positions;
  DType position_dtype;
  bool half_split, in_place;
};

template <typename T>
__device__ void rotate_token(const RotaryShape& a, Heads<const T> x, Heads<T> out,
                             std::int64_t position) {
  for (std::int64_t pair = threadIdx.x; pair < a.pairs; pair += kPairs) {
    const CosSin rotation = cos_sin(position, a.inv_freq[pair]);
    const std::int64_t first = a.half_split ? pair : 2 * pair;
    const std::int64_t second = a.half_split ? pair + a.pairs : 2 * pair + 1;
    for (std::int64_t h = threadIdx.y; h < a.heads; h += kHeads) {
      const RotatedPair pair_out =
          rotated(to_f32(x.head(h)[first]), to_f32(x.head(h)[second]), rotation);
      out.head(h)[first] = from_f32<T>(pair_out.first);
      out.head(h)[second] = from_f32<T>(pair_out.second);
    }
  }
  if (a.in_place) return;
  for (std::int64_t h = threadIdx.y; h < a.heads; h += kHeads) {  // what is not rotated
    for (std::int64_t i = 2 * a.pairs + threadIdx.x; i < a.dim; i += kPairs) {
      out.head(h)[i] = x.head(h)[i];
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kPairs* kHeads) rotate_tokens(RotaryShape a, const T* x, T* out) {
  for (std::int64_t i = blockIdx.x; i < a.batches * a.tokens; i += gridDim.x) {
    const std::int64_t batch = i / a.tokens, token = i % a.tokens;
    const std::int64_t position =
        index_at(a.positions, a.position_dtype, batch * a.position_stride + token);
    rotate_token<T>(a, {x + batch * a.x_strides[0] + token * a.x_strides[1], a.x_strides[2]},
                    {out + batch * a.out_strides[0] + token * a.out_strides[1], a.out_strides[2]},
                    position);
  }
}

}  // namespace

void rotary(Context& ctx, const RotaryArgs& args) {
  const Tensor &x = args.x, &out = args.out, &positions = args.positions;
  if (x.numel() == 0) return;
  const RotaryShape shape{.batches = x.shape[0],
                          .tokens = x.shape[1],
                          .heads = x.shape[2],
                          .dim = x.shape[3],
                          .pairs = args.rope.inv_freq.shape[0],
                          .x_strides = {x.strides[0], x.strides[1], x.strides[2]},
                          .out_strides = {out.strides[0], out.strides[1], out.strides[2]},
                          .position_stride = positions.rank == 1 ? 0 : positions.strides[0],
                          .inv_freq = args.rope.inv_freq.ptr<const float>(),
                          .positions = positions.data,
                          .position_dtype = positions.dtype,
                          .half_split = args.rope.style == RopeStyle::half_split,
                          .in_place = x.data == out.data};
  const Launch launch(ctx, "rotary");
  with_float_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    launch(rotate_tokens<T>,
           {.blocks = shape.batches * shape.tokens, .threads = dim3(kPairs, kHeads)}, shape,
           x.ptr<const T>(), out.ptr<T>());
  });
}

}  // namespace tessera::cuda
