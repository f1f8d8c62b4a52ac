#include "noise.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/philox.h"
#include "tessera/quant.h"

namespace tessera::bench {
namespace {

constexpr std::int64_t kBlock = 1'048'573;  // the largest prime below 2^20

std::vector<float> read(Context& ctx, const Tensor& matrix) {
  std::vector<float> values(static_cast<std::size_t>(matrix.numel()));
  copy_bytes(ctx, values.data(), Device::cpu(), matrix.data, matrix.device, matrix.bytes());
  return values;
}

}  // namespace

Noise::Noise(Context& ctx, float deviation) : ctx_(ctx), block_(kBlock * 4, ctx.device()) {
  constexpr float kSumDeviation = 0.57735f;  // of four uniform numbers: sqrt(4 / 12)
  std::vector<float> values(kBlock);
  for (std::size_t i = 0; i < values.size(); ++i) {
    float sum = -2.f;
    for (const std::uint32_t word : philox(1, {static_cast<std::uint32_t>(i), 0, 0, 0})) {
      sum += static_cast<float>(word) * 0x1p-32f;
    }
    values[i] = sum * (deviation / kSumDeviation);
  }
  copy_bytes(ctx, block_.data(), block_.device(), values.data(), Device::cpu(), block_.bytes());
}

Matrix Noise::matrix(DType dtype, std::int64_t rows, std::int64_t cols, std::uint32_t seed) const {
  const Device device = ctx_.device();
  const Tensor block = block_.tensor(DType::f32, {1, kBlock});
  const Buffer converted(dtype, {1, kBlock}, device);
  dequantize(ctx_, Weight::dense(block), converted.tensor(dtype, {1, kBlock}));

  Matrix made{.buffer = Buffer(dtype, {rows, cols}, device)};
  made.view = made.buffer.tensor(dtype, {rows, cols});
  auto* const to = static_cast<char*>(made.buffer.data());
  const auto* const from = static_cast<const char*>(converted.data());
  const std::int64_t bytes = made.view.bytes(), size = size_of(dtype);
  // Copies the block from `begin` on, wrapping around at its end. Then copies what has been written
  // so far, which doubles it each time.
  const std::int64_t begin = std::int64_t{seed} * 7919 % kBlock * size;
  std::int64_t done = 0;
  const auto append = [&](const char* source, std::int64_t count) {
    count = std::min(count, bytes - done);
    copy_bytes(ctx_, to + done, device, source, device, count);
    done += count;
  };
  append(from + begin, kBlock * size - begin);
  append(from, begin);
  while (done < bytes) append(to, done);
  ctx_.synchronize();  // `converted` is freed here
  return made;
}

Matrix in_f32(Context& ctx, const Tensor& matrix) {
  Matrix made{.buffer = Buffer(DType::f32, {matrix.shape[0], matrix.shape[1]}, ctx.device())};
  made.view = made.buffer.tensor(DType::f32, {matrix.shape[0], matrix.shape[1]});
  dequantize(ctx, Weight::dense(matrix), made.view);
  return made;
}

double relative_error(Context& ctx, const Tensor& a, const Tensor& b) {
  const std::vector<float> found = read(ctx, a), expected = read(ctx, b);
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double exact = static_cast<double>(expected[i]);
    const double error = static_cast<double>(found[i]) - exact;
    difference += error * error;
    size += exact * exact;
  }
  return std::sqrt(difference / size);
}

}  // namespace tessera::bench
