// A view of memory that someone else owns: pointer, dtype, device, shape, strides (in elements).
// These are DLPack's fields, so that a Tensor maps to a DLTensor and back without a copy.
// Copying a Tensor copies the view, never the data.
//
// Threads: a value, as safe as an int. The owner of the memory guards it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "tessera/device.h"
#include "tessera/dtype.h"

namespace tessera {

inline constexpr int kMaxRank = 6;

// The data of a Tensor, made from any pointer. A pointer to const makes the Tensor read-only.
struct DataPointer {
  void* data = nullptr;
  bool read_only = false;

  DataPointer(std::nullptr_t) {}
  DataPointer(void* writable) : data(writable) {}
  DataPointer(const void* constant) : data(const_cast<void*>(constant)), read_only(true) {}
};

struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  bool read_only = false;  // every op refuses it as an output; views of it are read-only too
  Device device;
  int rank = 0;
  std::array<std::int64_t, kMaxRank> shape{};
  std::array<std::int64_t, kMaxRank> strides{};

  // An empty Tensor stands for "not given" wherever an argument is optional.
  Tensor() = default;

  // Row-major contiguous view. Throws on a negative size or an element count beyond 64 bits.
  Tensor(DataPointer data, DType dtype, std::span<const std::int64_t> shape, Device device = {});
  Tensor(DataPointer data, DType dtype, std::initializer_list<std::int64_t> shape,
         Device device = {});
  // Any strides, in elements.
  Tensor(DataPointer data, DType dtype, std::span<const std::int64_t> shape,
         std::span<const std::int64_t> strides, Device device = {});

  // False for the empty Tensor: an argument that was not given.
  bool defined() const { return rank > 0; }
  std::int64_t size(int dim) const;    // dim < 0 counts from the end
  std::int64_t stride(int dim) const;  // dim < 0 counts from the end
  std::int64_t numel() const;
  std::int64_t bytes() const { return numel() * size_of(dtype); }
  bool is_contiguous() const;

  // Views of the same memory. Each throws if the arguments do not describe one.
  Tensor slice(int dim, std::int64_t begin, std::int64_t end) const;  // [begin, end) of dim
  Tensor select(int dim, std::int64_t index) const;                   // drops dim
  Tensor transpose(int dim0, int dim1) const;
  Tensor permute(std::initializer_list<int> order) const;
  Tensor view(std::initializer_list<std::int64_t> new_shape) const;  // contiguous only; one -1

  // The data as T*. Check read_only before you write through it.
  template <typename T>
  T* ptr() const {
    return static_cast<T*>(data);
  }
};

// "f32[2, 16, 64]", with strides where they are not the contiguous ones.
std::string to_string(const Tensor& tensor);

}  // namespace tessera
