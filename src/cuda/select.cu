// The largest elements of each row: one block for each row. The order asked for (NaN first, then
// falling values, then rising indices) is the falling order of one 64-bit key:
//
//   63                    32 31                     0
//   [ value, made sortable ] [ ~index             ]
//
// So the largest element is the largest key, and the next one the largest key below the last. Each
// of the k takes one pass over the row: k * n work, which is little for the few that sampling asks
// for.
#include "cuda/select.h"

#include <limits>
#include <string>

#include "core/rows.h"
#include "core/type_switch.h"
#include "cuda/block_reduce.cuh"
#include "cuda/element.cuh"
#include "cuda/launch.h"
#include "tessera/error.h"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 1024;  // rows are long (a vocabulary) and few
constexpr int kWarps = kThreads / kWarp;

using Key = unsigned long long;

constexpr std::uint32_t kNanBits = 0xfffffffeu;  // above +inf, 0xff800000
constexpr Key kAll = ~Key{0};                    // above every key

__device__ Key key_of(float value, std::int64_t index) {
  std::uint32_t bits = __float_as_uint(value + 0.f);  // -0 becomes +0
  bits = bits >> 31 ? ~bits : bits | 0x80000000u;     // negative numbers run backwards
  if (isnan(value)) bits = kNanBits;
  return static_cast<Key>(bits) << 32 | static_cast<std::uint32_t>(~index);
}

__device__ std::int64_t index_of(Key key) { return static_cast<std::uint32_t>(~key); }

// The largest key below `bound` among all elements of the row.
template <typename T>
__device__ Key largest_below(const T* x, std::int64_t n, Key bound) {
  Key largest = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
    const Key key = key_of(to_f32(x[i]), i);
    if (key < bound && key > largest) largest = key;
  }
  return block_reduce<kWarps>(largest, Max());
}

template <typename T, typename Index>
__global__ void __launch_bounds__(kThreads) argmax_rows(Rows x, Rows indices) {
  for (std::int64_t row = blockIdx.x; row < x.rows(); row += gridDim.x) {
    const Key key = largest_below(x.row<const T>(row), x.cols(), kAll);
    if (threadIdx.x == 0) {
      indices.row<Index>(row / indices.cols())[row % indices.cols()] =
          static_cast<Index>(index_of(key));
    }
  }
}

template <typename T, typename Index>
__global__ void __launch_bounds__(kThreads) top_k_rows(Rows x, Rows values, Rows indices) {
  for (std::int64_t row = blockIdx.x; row < x.rows(); row += gridDim.x) {
    const T* elements = x.row<const T>(row);
    Key key = kAll;
    for (std::int64_t j = 0; j < values.cols(); ++j) {
      key = largest_below(elements, x.cols(), key);
      if (threadIdx.x == 0) {
        values.row<T>(row)[j] = elements[index_of(key)];
        indices.row<Index>(row)[j] = static_cast<Index>(index_of(key));
      }
    }
  }
}

void check_length(const char* op, std::int64_t n) {
  if (n > std::numeric_limits<std::uint32_t>::max()) {
    throw Error(ErrorCode::unsupported, std::string(op) + ": rows of " + std::to_string(n) +
                                            " elements are too long for a GPU; use the CPU");
  }
}

// Calls fn(element, index) with the types of the tensors.
template <typename F>
void with_types(DType dtype, DType index_dtype, F&& fn) {
  with_float_type(dtype, [&](auto element) {
    with_index_type(index_dtype, [&](auto index) { fn(element, index); });
  });
}

}  // namespace

void argmax(Context& ctx, const ArgmaxArgs& args) {
  check_length("argmax", args.x.size(-1));
  if (args.indices.numel() == 0) return;
  const Rows x(args.x), indices(args.indices);
  const Launch launch(ctx, "argmax");
  with_types(args.x.dtype, args.indices.dtype, [&](auto element, auto index) {
    launch(argmax_rows<decltype(element), decltype(index)>,
           {.blocks = x.rows(), .threads = kThreads}, x, indices);
  });
}

void top_k(Context& ctx, const TopKArgs& args) {
  check_length("top_k", args.x.size(-1));
  if (args.values.numel() == 0) return;
  const Rows x(args.x), values(args.values), indices(args.indices);
  const Launch launch(ctx, "top_k");
  with_types(args.x.dtype, args.indices.dtype, [&](auto element, auto index) {
    launch(top_k_rows<decltype(element), decltype(index)>,
           {.blocks = x.rows(), .threads = kThreads}, x, values, indices);
  });
}

}  // namespace tessera::cuda
