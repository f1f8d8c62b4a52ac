// The largest elements of each row: one block for each row. The order asked for (NaN first, then
// falling values, then rising indices) is the falling order of one 64-bit key:
//
//   63                    32 31                     0
//   [ value, made sortable ] [ ~index             ]
//
// So the largest element is the largest key. The k largest take two passes over the row:
//
//   pass 1   each of the 1024 threads finds the largest key among its elements. They are sorted;
//            the k-th of them is a bound: k elements at least have a key as large.
//   pass 2   elements with such keys are collected in shared memory, few more than k unless they
//            crowd in few threads; sorted, their head is the result.
//
// Where they are too many for shared memory, and for k beyond 1024, each of the k takes a pass of
// its own: the largest key below the last.
#include "cuda/select.h"

#include <limits>
#include <string>

#include "core/rows.h"
#include "core/type_switch.h"
#include "cuda/block_reduce.cuh"
#include "cuda/element.cuh"
#include "cuda/launch.h"
#include "cuda/piece.cuh"
#include "tessera/error.h"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 1024;  // rows are long (a vocabulary) and few
constexpr int kWarps = kThreads / kWarp;
constexpr int kCandidates = 4096;  // 32 KiB of shared memory

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

// Calls fn(key) for the thread's share of the row: 16 bytes at a time where they lie so.
template <typename T, typename F>
__device__ void for_each_key(const T* x, std::int64_t n, F&& fn) {
  constexpr int kSize = Piece<T>::kSize;
  std::int64_t done = 0;  // elements that were in whole pieces
  if (reinterpret_cast<std::uintptr_t>(x) % kPieceBytes == 0) {
    const std::int64_t pieces = n / kSize;
#pragma unroll 4  // so that several loads are on their way
    for (std::int64_t p = threadIdx.x; p < pieces; p += kThreads) {
      const Piece<T> piece = load_piece(x + p * kSize);
#pragma unroll
      for (int i = 0; i < kSize; ++i) fn(key_of(piece[i], p * kSize + i));
    }
    done = pieces * kSize;
  }
  for (std::int64_t i = done + threadIdx.x; i < n; i += kThreads) fn(key_of(to_f32(x[i]), i));
}

template <typename T>
__device__ Key largest_of_thread(const T* x, std::int64_t n) {
  Key largest = 0;
  for_each_key(x, n, [&](Key key) { largest = key > largest ? key : largest; });
  return largest;
}

// The largest key below `bound` among all elements of the row.
template <typename T>
__device__ Key largest_below(const T* x, std::int64_t n, Key bound) {
  Key largest = 0;
  for_each_key(x, n, [&](Key key) {
    if (key < bound && key > largest) largest = key;
  });
  return block_reduce<kWarps>(largest, Max());
}

template <typename T, typename Index>
__global__ void __launch_bounds__(kThreads) argmax_rows(Rows x, Rows indices) {
  for (std::int64_t row = blockIdx.x; row < x.rows(); row += gridDim.x) {
    const Key key = block_reduce<kWarps>(largest_of_thread(x.row<const T>(row), x.cols()), Max());
    if (threadIdx.x == 0) {
      indices.row<Index>(row / indices.cols())[row % indices.cols()] =
          static_cast<Index>(index_of(key));
    }
  }
}

// Sorts keys[0 .. size), a power of two, largest first: bitonic, each step a barrier.
__device__ void sort_falling(Key* keys, int size) {
  for (int run = 2; run <= size; run *= 2) {
    for (int distance = run / 2; distance > 0; distance /= 2) {
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < size / 2; i += kThreads) {
        const int a = i / distance * 2 * distance + i % distance, b = a + distance;
        const bool falls = (a & run) == 0;
        const Key first = keys[a], second = keys[b];
        if ((first < second) == falls) {
          keys[a] = second;
          keys[b] = first;
        }
      }
    }
  }
  __syncthreads();
}

// Leaves the k largest keys of the row in keys[0 .. k), sorted. False where there are more
// candidates than room.
template <typename T>
__device__ bool collect_top(const T* x, std::int64_t n, int k, Key* keys, int* count) {
  keys[threadIdx.x] = largest_of_thread(x, n);  // 0, below every key, where it has no element
  sort_falling(keys, kThreads);
  const Key bound = keys[k - 1];
  __syncthreads();  // all have read it
  if (threadIdx.x == 0) *count = 0;
  __syncthreads();
  for_each_key(x, n, [&](Key key) {
    if (key < bound) return;
    const int at = atomicAdd(count, 1);
    if (at < kCandidates) keys[at] = key;
  });
  __syncthreads();
  const int found = *count;
  if (found > kCandidates) return false;
  int size = 1;
  while (size < found) size *= 2;
  for (int i = found + static_cast<int>(threadIdx.x); i < size; i += kThreads) keys[i] = 0;
  sort_falling(keys, size);
  return true;
}

template <typename T, typename Index>
__global__ void __launch_bounds__(kThreads) top_k_rows(Rows x, Rows values, Rows indices) {
  __shared__ Key keys[kCandidates];
  __shared__ int count;
  const std::int64_t k = values.cols();
  for (std::int64_t row = blockIdx.x; row < x.rows(); row += gridDim.x) {
    const T* elements = x.row<const T>(row);
    const auto write = [&](std::int64_t j, Key key) {
      values.row<T>(row)[j] = elements[index_of(key)];
      indices.row<Index>(row)[j] = static_cast<Index>(index_of(key));
    };
    if (k <= kThreads && collect_top(elements, x.cols(), static_cast<int>(k), keys, &count)) {
      for (std::int64_t j = threadIdx.x; j < k; j += kThreads) write(j, keys[j]);
      __syncthreads();  // the keys are free
      continue;
    }
    Key key = kAll;
    for (std::int64_t j = 0; j < k; ++j) {
      key = largest_below(elements, x.cols(), key);
      if (threadIdx.x == 0) write(j, key);
    }
    __syncthreads();
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
