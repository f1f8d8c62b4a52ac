#include "tessera/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "core/checked.h"

namespace tessera {
namespace {

int normalized(const Tensor& tensor, int dim, int rank) {
  const int d = dim < 0 ? dim + rank : dim;
  if (d < 0 || d >= rank) {
    fail(ErrorCode::invalid_argument, "dimension {} is out of range for {}", dim,
         to_string(tensor));
  }
  return d;
}

void set_contiguous_strides(Tensor& tensor) {
  std::int64_t stride = 1;
  for (int d = tensor.rank - 1; d >= 0; --d) {
    tensor.strides[d] = stride;
    stride = checked_mul(stride, std::max<std::int64_t>(tensor.shape[d], 1));
  }
}

}  // namespace

std::string_view name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::f8e4m3:
      return "f8e4m3";
    case DType::i8:
      return "i8";
    case DType::u8:
      return "u8";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
  }
  return "unknown";
}

Tensor::Tensor(DataPointer data_, DType dtype_, std::span<const std::int64_t> shape_,
               Device device_)
    : data(data_.data), dtype(dtype_), read_only(data_.read_only), device(device_) {
  if (shape_.size() > kMaxRank) {
    fail(ErrorCode::invalid_argument, "a tensor of rank {} was requested; at most {} is possible",
         shape_.size(), kMaxRank);
  }
  rank = static_cast<int>(shape_.size());
  std::copy(shape_.begin(), shape_.end(), shape.begin());
  checked_mul(checked_product(shape_), size_of(dtype));
  set_contiguous_strides(*this);
}

Tensor::Tensor(DataPointer data_, DType dtype_, std::initializer_list<std::int64_t> shape_,
               Device device_)
    : Tensor(data_, dtype_, std::span(shape_.begin(), shape_.size()), device_) {}

Tensor::Tensor(DataPointer data_, DType dtype_, std::span<const std::int64_t> shape_,
               std::span<const std::int64_t> strides_, Device device_)
    : Tensor(data_, dtype_, shape_, device_) {
  if (strides_.size() != shape_.size()) {
    fail(ErrorCode::invalid_argument, "{} strides were given for {} dimensions", strides_.size(),
         shape_.size());
  }
  std::copy(strides_.begin(), strides_.end(), strides.begin());
}

std::int64_t Tensor::size(int dim) const { return shape[normalized(*this, dim, rank)]; }
std::int64_t Tensor::stride(int dim) const { return strides[normalized(*this, dim, rank)]; }

std::int64_t Tensor::numel() const {
  if (rank == 0) return 0;
  return checked_product(std::span(shape.data(), static_cast<std::size_t>(rank)));
}

bool Tensor::is_contiguous() const {
  std::int64_t expected = 1;
  for (int d = rank - 1; d >= 0; --d) {
    if (shape[d] == 0) return true;
    if (shape[d] != 1 && strides[d] != expected) return false;
    expected *= shape[d];
  }
  return true;
}

Tensor Tensor::slice(int dim, std::int64_t begin, std::int64_t end) const {
  const int d = normalized(*this, dim, rank);
  if (begin < 0 || end < begin || end > shape[d]) {
    fail(ErrorCode::invalid_argument, "slice [{}, {}) does not lie in dimension {} of {}", begin,
         end, dim, to_string(*this));
  }
  Tensor result = *this;
  if (data) result.data = static_cast<char*>(data) + begin * strides[d] * size_of(dtype);
  result.shape[d] = end - begin;
  return result;
}

Tensor Tensor::select(int dim, std::int64_t index) const {
  const int d = normalized(*this, dim, rank);
  if (rank == 1) {
    fail(ErrorCode::invalid_argument, "select needs at least 2 dimensions; {} has one",
         to_string(*this));
  }
  Tensor result = slice(d, index, index + 1);
  for (int i = d; i + 1 < rank; ++i) {
    result.shape[i] = shape[i + 1];
    result.strides[i] = strides[i + 1];
  }
  --result.rank;
  result.shape[result.rank] = result.strides[result.rank] = 0;
  return result;
}

Tensor Tensor::transpose(int dim0, int dim1) const {
  Tensor result = *this;
  const int a = normalized(*this, dim0, rank), b = normalized(*this, dim1, rank);
  std::swap(result.shape[a], result.shape[b]);
  std::swap(result.strides[a], result.strides[b]);
  return result;
}

Tensor Tensor::permute(std::initializer_list<int> order) const {
  const bool complete = static_cast<int>(order.size()) == rank;
  Tensor result = *this;
  unsigned seen = 0;
  int d = 0;
  for (int from : order) {
    if (!complete || from < 0 || from >= rank || (seen >> from & 1u)) {
      fail(ErrorCode::invalid_argument, "({}) is not an order of the dimensions of {}",
           fmt::join(order, ", "), to_string(*this));
    }
    seen |= 1u << from;
    result.shape[d] = shape[from];
    result.strides[d++] = strides[from];
  }
  return result;
}

Tensor Tensor::view(std::initializer_list<std::int64_t> new_shape) const {
  const auto refuse = [&] {
    fail(ErrorCode::invalid_argument, "{} cannot be viewed as [{}]", to_string(*this),
         fmt::join(new_shape, ", "));
  };
  if (!is_contiguous()) refuse();
  std::int64_t known = 1, unknown_at = -1, at = 0;
  std::array<std::int64_t, kMaxRank> sizes{};
  if (new_shape.size() > kMaxRank) refuse();
  for (std::int64_t size : new_shape) {
    if (size == -1 && unknown_at < 0) {
      unknown_at = at;
    } else if (size < 0) {
      refuse();
    } else {
      known = checked_mul(known, size);
    }
    sizes[at++] = size;
  }
  const std::int64_t total = numel();
  if (unknown_at >= 0) {
    if (known == 0 || total % known != 0) refuse();
    sizes[unknown_at] = total / known;
  } else if (known != total) {
    refuse();
  }
  Tensor result(data, dtype, std::span<const std::int64_t>(sizes.data(), new_shape.size()), device);
  result.read_only = read_only;
  return result;
}

std::string to_string(const Tensor& tensor) {
  if (!tensor.defined()) return "no tensor";
  const std::span<const std::int64_t> shape(tensor.shape.data(),
                                            static_cast<std::size_t>(tensor.rank));
  std::string text = fmt::format("{}[{}]", name(tensor.dtype), fmt::join(shape, ", "));
  if (!tensor.is_contiguous()) {
    const std::span<const std::int64_t> strides(tensor.strides.data(), shape.size());
    fmt::format_to(std::back_inserter(text), " with strides [{}]", fmt::join(strides, ", "));
  }
  return text;
}

}  // namespace tessera
