// Keys and values into the pages of a cache: one block for each token, a thread for every 256th
// element. A slot out of range cannot be reported from here without waiting for the device; that
// token is dropped. Into pages of 8 bits, a warp writes every eighth head.
#include "cuda/elementwise/kv_append.h"

#include "core/cache_dtype.h"
#include "core/type_switch.h"
#include "cuda/runtime/launch.h"
#include "cuda/tile/codes.cuh"
#include "cuda/tile/element.cuh"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;

// k or v, and its pool.
struct Side {
  void* from;
  std::int64_t token_stride, head_stride;
  void* to;
  std::int64_t page_stride, row_stride, pool_head_stride;
  float* scales;  // of 8 bits
  std::int64_t scale_page_stride, scale_head_stride;

  Side(const Tensor& tensor, const Tensor& pages, const Tensor& scales_of_pages)
      : from(tensor.data),
        token_stride(tensor.strides[0]),
        head_stride(tensor.strides[1]),
        to(pages.data),
        page_stride(pages.strides[0]),
        row_stride(pages.strides[1]),
        pool_head_stride(pages.strides[2]),
        scales(scales_of_pages.ptr<float>()),
        scale_page_stride(scales_of_pages.strides[0]),
        scale_head_stride(scales_of_pages.strides[1]) {}
};

struct AppendShape {
  std::int64_t tokens, heads, dim, pages, page_size;
};

// T is an unsigned integer of the element's size: bits are copied as they are.
template <typename T>
__device__ void copy_token(const Side& side, const AppendShape& shape, std::int64_t token,
                           std::int64_t slot) {
  const T* from = static_cast<const T*>(side.from) + token * side.token_stride;
  T* to = static_cast<T*>(side.to) + slot / shape.page_size * side.page_stride +
          slot % shape.page_size * side.row_stride;
  for (std::int64_t i = threadIdx.x; i < shape.heads * shape.dim; i += kThreads) {
    const std::int64_t head = i / shape.dim, d = i % shape.dim;
    to[head * side.pool_head_stride + d] = from[head * side.head_stride + d];
  }
}

template <typename T>
__device__ void encode_token(const Side& side, const AppendShape& shape, DType stored,
                             std::int64_t token, std::int64_t slot) {
  const std::int64_t page = slot / shape.page_size, row = slot % shape.page_size;
  const T* from = static_cast<const T*>(side.from) + token * side.token_stride;
  auto* to = static_cast<std::uint8_t*>(side.to) + page * side.page_stride + row * side.row_stride;
  float* scales = side.scales + page * side.scale_page_stride + row;
  for (std::int64_t h = threadIdx.x / kWarp; h < shape.heads; h += kThreads / kWarp) {
    const T* head = from + h * side.head_stride;
    encode_row(
        static_cast<int>(shape.dim), stored, [&](int d) { return to_f32(head[d]); },
        to + h * side.pool_head_stride, scales + h * side.scale_head_stride);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    append_codes(Side k, Side v, DType stored, const std::int32_t* slots, AppendShape shape) {
  for (std::int64_t token = blockIdx.x; token < shape.tokens; token += gridDim.x) {
    const std::int64_t slot = slots[token];
    if (slot < 0 || slot >= shape.pages * shape.page_size) continue;
    encode_token<T>(k, shape, stored, token, slot);
    encode_token<T>(v, shape, stored, token, slot);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    append(Side k, Side v, const std::int32_t* slots, AppendShape shape) {
  for (std::int64_t token = blockIdx.x; token < shape.tokens; token += gridDim.x) {
    const std::int64_t slot = slots[token];
    if (slot < 0 || slot >= shape.pages * shape.page_size) continue;
    copy_token<T>(k, shape, token, slot);
    copy_token<T>(v, shape, token, slot);
  }
}

}  // namespace

void kv_append(Context& ctx, const KvAppendArgs& args) {
  if (args.k.numel() == 0) return;
  const Side k(args.k, args.k_pages, args.k_scales), v(args.v, args.v_pages, args.v_scales);
  const AppendShape shape{args.k.shape[0], args.k.shape[1], args.k.shape[2], args.k_pages.shape[0],
                          args.k_pages.shape[1]};
  const std::int32_t* slots = args.slots.ptr<const std::int32_t>();
  const Launch launch(ctx, "kv_append");
  const Grid grid{.blocks = shape.tokens, .threads = kThreads};
  if (const DType stored = args.k_pages.dtype; has_scales(stored)) {
    return with_float_type(args.k.dtype, [&](auto type) {
      launch(append_codes<decltype(type)>, grid, k, v, stored, slots, shape);
    });
  }
  const auto kernel = size_of(args.k.dtype) == 2 ? append<std::uint16_t> : append<std::uint32_t>;
  launch(kernel, grid, k, v, slots, shape);
}

}  // namespace tessera::cuda
