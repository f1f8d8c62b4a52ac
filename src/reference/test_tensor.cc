#include "reference/test_tensor.h"

#include <array>
#include <cmath>
#include <cstring>
#include <numbers>

#include "core/half.h"
#include "core/philox.h"
#include "quant/e4m3.h"

namespace tessera::test {
namespace {

// Poison: NaN in f32, f16, bf16 and E4M3, and an unlikely number in the integer types.
constexpr unsigned char kPoison = 0xff;

void store(void* at, DType dtype, double value) {
  const auto put = [at](auto x) { std::memcpy(at, &x, sizeof(x)); };
  switch (dtype) {
    case DType::f32:
      return put(static_cast<float>(value));
    case DType::f16:
      return put(to_f16(static_cast<float>(value)));
    case DType::bf16:
      return put(to_bf16(static_cast<float>(value)));
    case DType::f8e4m3:
      return put(e4m3_encode(static_cast<float>(value)));
    case DType::i8:
      return put(static_cast<std::int8_t>(value));
    case DType::u8:
      return put(static_cast<std::uint8_t>(value));
    case DType::i32:
      return put(static_cast<std::int32_t>(value));
    case DType::i64:
      return put(static_cast<std::int64_t>(value));
  }
}

template <typename T>
T get(const void* at) {
  T x;
  std::memcpy(&x, at, sizeof(x));
  return x;
}

double load(const void* at, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return get<float>(at);
    case DType::f16:
      return to_float(get<Half>(at));
    case DType::bf16:
      return to_float(get<BFloat16>(at));
    case DType::f8e4m3:
      return e4m3_decode(get<std::uint8_t>(at));
    case DType::i8:
      return get<std::int8_t>(at);
    case DType::u8:
      return get<std::uint8_t>(at);
    case DType::i32:
      return get<std::int32_t>(at);
    case DType::i64:
      return static_cast<double>(get<std::int64_t>(at));
  }
  return 0;
}

// Calls fn(byte offset from the view's start, element number) for each element, in row-major order.
template <typename F>
void for_each_element(const Tensor& view, F&& fn) {
  const std::int64_t total = view.numel(), size = size_of(view.dtype);
  const int last = view.rank - 1;
  const std::int64_t columns = last < 0 ? 1 : view.shape[last];
  for (std::int64_t n = 0; n < total; n += columns) {
    std::int64_t rest = n / columns, offset = 0;
    for (int d = last - 1; d >= 0; --d) {
      offset += rest % view.shape[d] * view.strides[d];
      rest /= view.shape[d];
    }
    const std::int64_t step = last < 0 ? 0 : view.strides[last];
    for (std::int64_t i = 0; i < columns; ++i) fn((offset + i * step) * size, n + i);
  }
}

}  // namespace

std::string to_string(Layout layout) {
  switch (layout) {
    case Layout::contiguous:
      return "contiguous";
    case Layout::sliced:
      return "sliced";
    case Layout::permuted:
      return "permuted";
    case Layout::spaced:
      return "spaced";
  }
  return "";
}

TestTensor::TestTensor(Context& ctx, std::vector<std::int64_t> shape, DType dtype, Layout layout)
    : ctx_(&ctx), shape_(std::move(shape)) {
  const int rank = static_cast<int>(shape_.size());
  std::vector<std::int64_t> strides(shape_.size());
  std::int64_t total = 1;
  const auto place = [&](int d, std::int64_t padding) {
    strides[d] = total;
    total *= shape_[d] + padding;
  };
  if (layout == Layout::permuted) {
    place(rank - 1, 0);
    for (int d = 0; d < rank - 1; ++d) place(d, 0);
  } else if (layout == Layout::spaced) {
    place(rank - 1, 32 - shape_.back() % 16);
    for (int d = rank - 2; d >= 0; --d) place(d, 1);
  } else {
    const std::int64_t padding = layout == Layout::sliced ? 3 : 0;
    for (int d = rank - 1; d >= 0; --d) place(d, padding);
  }
  offset_ = layout == Layout::sliced ? 5 : layout == Layout::spaced ? 16 : 0;
  // Canaries come after the end too: writing one vector too many is a common mistake of kernels.
  const std::int64_t elements = offset_ + total + 64;
  buffer_ = Buffer(elements * size_of(dtype), ctx.device());
  view_ = Tensor(static_cast<char*>(buffer_.data()) + offset_ * size_of(dtype), dtype, shape_,
                 strides, ctx.device());
  made_.assign(static_cast<std::size_t>(buffer_.bytes()), kPoison);
}

TestTensor::TestTensor(Context& ctx, const Array& values, DType dtype, Layout layout)
    : TestTensor(ctx, values.shape, dtype, layout) {
  unsigned char* start = made_.data() + offset_ * size_of(dtype);
  for_each_element(view_, [&](std::int64_t at, std::int64_t n) {
    store(start + at, dtype, values.data[static_cast<std::size_t>(n)]);
  });
  upload(made_);
}

TestTensor TestTensor::poisoned(Context& ctx, std::vector<std::int64_t> shape, DType dtype,
                                Layout layout) {
  TestTensor tensor(ctx, std::move(shape), dtype, layout);
  tensor.upload(tensor.made_);
  return tensor;
}

void TestTensor::upload(const std::vector<unsigned char>& bytes) {
  copy_bytes(*ctx_, buffer_.data(), buffer_.device(), bytes.data(), Device::cpu(), buffer_.bytes());
  ctx_->synchronize();  // because other Contexts may read it
}

std::vector<unsigned char> TestTensor::download() const {
  std::vector<unsigned char> bytes(static_cast<std::size_t>(buffer_.bytes()));
  copy_bytes(*ctx_, bytes.data(), Device::cpu(), buffer_.data(), buffer_.device(), buffer_.bytes());
  ctx_->synchronize();
  return bytes;
}

Array TestTensor::read() const {
  const std::vector<unsigned char> bytes = download();
  const unsigned char* start = bytes.data() + offset_ * size_of(view_.dtype);
  Array values(shape_);
  for_each_element(view_, [&](std::int64_t at, std::int64_t n) {
    values.data[static_cast<std::size_t>(n)] = load(start + at, view_.dtype);
  });
  return values;
}

bool TestTensor::surroundings_intact() const {
  std::vector<unsigned char> bytes = download();
  const std::int64_t start = offset_ * size_of(view_.dtype), size = size_of(view_.dtype);
  for_each_element(view_, [&](std::int64_t at, std::int64_t) {
    std::memcpy(&bytes[start + at], &made_[start + at], size);
  });
  return bytes == made_;
}

bool TestTensor::untouched() const { return download() == made_; }

Array random_normal(std::vector<std::int64_t> shape, std::uint64_t seed, double scale) {
  Array result(std::move(shape));
  for (std::size_t i = 0; i < result.data.size(); ++i) {
    // Box-Muller on two words of a counter-based generator. It needs no state, and does not depend
    // on a platform's distributions.
    const PhiloxWords words = philox(seed, {static_cast<std::uint32_t>(i), 0, 0, 0});
    const double u = (words[0] + 1.0) / 4294967297.0, v = words[1] / 4294967296.0;
    result.data[i] = scale * std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
  }
  return result;
}

Array random_integers(std::vector<std::int64_t> shape, std::uint64_t seed, std::int64_t low,
                      std::int64_t high) {
  Array result(std::move(shape));
  for (std::size_t i = 0; i < result.data.size(); ++i) {
    const PhiloxWords words = philox(seed, {static_cast<std::uint32_t>(i), 1, 0, 0});
    result.data[i] = static_cast<double>(low + static_cast<std::int64_t>(words[0]) % (high - low));
  }
  return result;
}

}  // namespace tessera::test
