// Tensors for tests: built from float64 arrays in any dtype, memory layout and device, with
// canaries all around.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/array.h"
#include "tessera/buffer.h"
#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera::test {

using reference::Array;

// The memory layout of a tensor. All have a contiguous last dimension, as the ops require.
enum class Layout {
  contiguous,  // row-major, aligned
  sliced,      // a slice of a larger tensor, in every dimension, at an odd offset
  permuted,    // the leading dimensions stored in reverse order
  spaced,      // a slice of a larger tensor whose rows begin on 16 elements, as of a fused qkv
};
// Those that every op is tested with.
inline constexpr Layout kLayouts[] = {Layout::contiguous, Layout::sliced, Layout::permuted};
std::string to_string(Layout layout);

class TestTensor {
 public:
  // Values are rounded to dtype. For integer dtypes they must be whole numbers in range.
  TestTensor(Context& ctx, const Array& values, DType dtype, Layout layout = Layout::contiguous);
  // An output full of poison (NaN, or a byte pattern for integers).
  static TestTensor poisoned(Context& ctx, std::vector<std::int64_t> shape, DType dtype,
                             Layout layout = Layout::contiguous);

  // Makes it what it was right after construction: an output is full of poison again.
  void restore() { upload(made_); }

  const Tensor& view() const { return view_; }
  operator const Tensor&() const { return view_; }  // so that args can be filled directly
  // The elements as they are now, in float64.
  Array read() const;
  // Whether every byte outside the view is unchanged since construction.
  bool surroundings_intact() const;
  // Whether every byte, inside and outside the view, is unchanged: nothing was written at all.
  bool untouched() const;

 private:
  TestTensor(Context& ctx, std::vector<std::int64_t> shape, DType dtype, Layout layout);
  void upload(const std::vector<unsigned char>& bytes);
  std::vector<unsigned char> download() const;

  Context* ctx_;
  Buffer buffer_;
  Tensor view_;
  std::int64_t offset_ = 0;          // elements before the view
  std::vector<unsigned char> made_;  // the bytes right after construction
  std::vector<std::int64_t> shape_;
};

// Normal(0, scale). The same seed gives the same numbers on every machine.
Array random_normal(std::vector<std::int64_t> shape, std::uint64_t seed, double scale = 1.0);
// Whole numbers in [low, high).
Array random_integers(std::vector<std::int64_t> shape, std::uint64_t seed, std::int64_t low,
                      std::int64_t high);

}  // namespace tessera::test
