// The largest elements of each row, by their keys (sort_keys.cuh). A block finds the k largest of
// many keys in two passes over them:
//
//   pass 1   each thread finds its own largest key. These are sorted, and the k-th of them is a
//            bound: at least k keys are as large.
//   pass 2   keys from the bound on are collected in shared memory: few more than k, unless they
//            crowd in few threads. Sorted, their head is the result.
//
// Few long rows are cut into parts, so that more of the GPU reads them: a block for each part
// leaves its k largest keys in scratch memory, and one block for each row takes the k largest of
// those. With many rows, each row has one block. Where keys crowd, and for k beyond 1024, each of
// the k results takes its own pass, which finds the largest key below the last result.
#include "cuda/sampling/select_kernels.h"

#include "core/rows.h"
#include "core/type_switch.h"
#include "cuda/runtime/launch.h"
#include "cuda/sampling/sort_keys.cuh"
#include "cuda/tile/block_reduce.cuh"
#include "cuda/tile/element.cuh"

namespace tessera::cuda {
namespace {

constexpr int kRowThreads = 1024;  // rows are long (a vocabulary) and few
constexpr int kPartThreads = 256;
constexpr int kCandidates = 4096;             // 32 KiB of shared memory
static_assert(kPartElements <= kCandidates);  // a part's candidates always fit

constexpr Key kAll = ~Key{0};  // above every key

// ---- many keys: for_each(fn) calls fn(key) for the thread's share of them -----------------------

// Keys that other blocks have written; 0 is none.
struct ListedKeys {
  const Key* keys;
  std::int64_t count;

  template <typename F>
  __device__ void for_each(F&& fn) const {
    for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) fn(keys[i]);
  }
};

// ---- the largest of them ------------------------------------------------------------------------

template <typename Keys>
__device__ Key largest_of_thread(const Keys& all, Key below) {
  Key largest = 0;
  all.for_each([&](Key key) {
    if (key < below && key > largest) largest = key;
  });
  return largest;
}

// Leaves the k largest in keys[0 .. k), sorted, and zeros if there are fewer. False if there are
// more candidates than room.
template <typename Keys>
__device__ bool collect_top(const Keys& all, int k, Key* keys, int* count) {
  Key bound = 1;
  if (k <= static_cast<int>(blockDim.x)) {
    keys[threadIdx.x] = largest_of_thread(all, kAll);
    sort_falling(keys, static_cast<int>(blockDim.x));
    bound = keys[k - 1] > 0 ? keys[k - 1] : 1;  // 0: fewer threads than k have any
    __syncthreads();                            // all threads have read it
  }
  if (threadIdx.x == 0) *count = 0;
  __syncthreads();
  all.for_each([&](Key key) {
    if (key < bound) return;
    const int at = atomicAdd(count, 1);
    if (at < kCandidates) keys[at] = key;
  });
  __syncthreads();
  const int found = *count;
  if (found > kCandidates) return false;
  int size = 1;
  while (size < found || size < k) size *= 2;
  for (int i = found + static_cast<int>(threadIdx.x); i < size; i += static_cast<int>(blockDim.x)) {
    keys[i] = 0;
  }
  sort_falling(keys, size);
  return true;
}

// Calls write(j, key) with the j-th largest for j from 0 to k.
template <int kThreads, typename Keys, typename Write>
__device__ void write_top(const Keys& all, std::int64_t k, Key* keys, int* count, Write&& write) {
  if (k > 1 && k <= kMostInTwoPasses && collect_top(all, static_cast<int>(k), keys, count)) {
    for (std::int64_t j = threadIdx.x; j < k; j += kThreads) write(j, keys[j]);
    return;
  }
  Key key = kAll;
  for (std::int64_t j = 0; j < k; ++j) {
    key = block_reduce<kThreads / kWarp>(largest_of_thread(all, key), Max());
    if (threadIdx.x == 0) write(j, key);
  }
}

// ---- kernels ------------------------------------------------------------------------------------

// Where the k largest of each row go; values may be empty.
template <typename T, typename Index>
struct Chosen {
  Rows values, indices;
  bool with_values;

  // indices of argmax() have no dimension for k, which is 1: they are numbered over all rows.
  __device__ void write(const T* elements, std::int64_t row, std::int64_t j, Key key) const {
    const auto index = static_cast<Index>(index_of(key));
    if (with_values) {
      values.row<T>(row)[j] = elements[index_of(key)];
      indices.row<Index>(row)[j] = index;
    } else {
      indices.row<Index>(row / indices.cols())[row % indices.cols()] = index;
    }
  }
};

template <typename T, typename Index>
__global__ void __launch_bounds__(kRowThreads)
    top_of_rows(PickedRows x, std::int64_t k, Chosen<T, Index> chosen) {
  __shared__ Key keys[kCandidates];
  __shared__ int count;
  for (std::int64_t row = blockIdx.x; row < x.rows(); row += gridDim.x) {
    const T* elements = x.row<T>(row);
    write_top<kRowThreads>(ElementKeys<T>{elements, 0, x.cols()}, k, keys, &count,
                           [&](std::int64_t j, Key key) { chosen.write(elements, row, j, key); });
    __syncthreads();  // the keys are free
  }
}

// Block b has part b % parts of row b / parts, and leaves its k largest at found[b * k].
template <typename T>
__global__ void __launch_bounds__(kPartThreads)
    top_of_parts(PickedRows x, std::int64_t parts, std::int64_t k, Key* found) {
  __shared__ Key keys[kCandidates];
  __shared__ int count;
  for (std::int64_t b = blockIdx.x; b < x.rows() * parts; b += gridDim.x) {
    const std::int64_t begin = b % parts * kPartElements;
    const std::int64_t end = begin + kPartElements < x.cols() ? begin + kPartElements : x.cols();
    write_top<kPartThreads>(ElementKeys<T>{x.row<T>(b / parts), begin, end}, k, keys, &count,
                            [&](std::int64_t j, Key key) { found[b * k + j] = key; });
    __syncthreads();
  }
}

template <typename T, typename Index>
__global__ void __launch_bounds__(kRowThreads)
    top_of_found(PickedRows x, std::int64_t parts, std::int64_t k, const Key* found,
                 Chosen<T, Index> chosen) {
  __shared__ Key keys[kCandidates];
  __shared__ int count;
  for (std::int64_t row = blockIdx.x; row < x.rows(); row += gridDim.x) {
    const T* elements = x.row<T>(row);
    write_top<kRowThreads>(ListedKeys{found + row * parts * k, parts * k}, k, keys, &count,
                           [&](std::int64_t j, Key key) { chosen.write(elements, row, j, key); });
    __syncthreads();
  }
}

}  // namespace

void select_rows(Context& ctx, const char* op, DType dtype, const PickedRows& x, std::int64_t k,
                 const Tensor& values, const Tensor& indices) {
  const Launch launch(ctx, op);
  with_float_type(dtype, [&](auto element) {
    with_index_type(indices.dtype, [&](auto index) {
      using T = decltype(element);
      using Index = decltype(index);
      launch(top_of_rows<T, Index>, {.blocks = x.rows(), .threads = kRowThreads}, x, k,
             {Rows(values), Rows(indices), values.defined()});
    });
  });
}

void select_parts(Context& ctx, const char* op, DType dtype, const PickedRows& x, std::int64_t k,
                  unsigned long long* found, const Tensor& values, const Tensor& indices) {
  const std::int64_t parts = select_parts_of(x.cols());
  const Launch launch(ctx, op);
  with_float_type(dtype, [&](auto element) {
    using T = decltype(element);
    launch(top_of_parts<T>, {.blocks = x.rows() * parts, .threads = kPartThreads}, x, parts, k,
           found);
    with_index_type(indices.dtype, [&](auto index) {
      using Index = decltype(index);
      launch(top_of_found<T, Index>, {.blocks = x.rows(), .threads = kRowThreads}, x, parts, k,
             found, {Rows(values), Rows(indices), values.defined()});
    });
  });
}

}  // namespace tessera::cuda
