#include "modules/host_tensor.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

#include "core/checked.h"
#include "core/half.h"
#include "core/philox.h"
#include "core/thread_pool.h"
#include "tessera/buffer.h"

namespace tessera {
namespace {

constexpr std::int64_t kChunk = 1 << 14;  // numbers per task; a multiple of the generator's four

template <typename T>
void fill_as(Context& ctx, const Tensor& out, std::span<const float> values) {
  std::vector<T> converted;
  converted.reserve(values.size());
  for (float value : values) converted.push_back(from_float<T>(value));
  copy_bytes(ctx, out.data, out.device, converted.data(), Device::cpu(), out.bytes());
  ctx.synchronize();  // from here on any Context may use the layer
}

}  // namespace

void fill(Context& ctx, const Tensor& out, std::span<const float> values) {
  if (!out.is_contiguous() || out.numel() != static_cast<std::int64_t>(values.size())) {
    fail(ErrorCode::invalid_argument, "{} values cannot fill {}", values.size(), to_string(out));
  }
  switch (out.dtype) {
    case DType::f32:
      return fill_as<float>(ctx, out, values);
    case DType::f16:
      return fill_as<Half>(ctx, out, values);
    case DType::bf16:
      return fill_as<BFloat16>(ctx, out, values);
    default:
      fail(ErrorCode::invalid_argument, "a layer's dtype is f32, f16 or bf16, got {}",
           name(out.dtype));
  }
}

void fill_normal(Context& ctx, const Tensor& out, std::uint64_t seed, float scale) {
  std::vector<float> values(static_cast<std::size_t>(out.numel()));
  // Box-Muller turns each pair of words into two independent normal numbers.
  const auto normal = [scale](std::uint32_t a, std::uint32_t b, float* cosine, float* sine) {
    const double radius = std::sqrt(-2.0 * std::log((a + 1.0) / 4294967297.0));
    const double angle = 2.0 * std::numbers::pi * b / 4294967296.0;
    *cosine = scale * static_cast<float>(radius * std::cos(angle));
    *sine = scale * static_cast<float>(radius * std::sin(angle));
  };
  ctx.pool().parallel_for(ceil_div(out.numel(), kChunk), [&](std::int64_t chunk, int) {
    const std::int64_t end = std::min(out.numel(), (chunk + 1) * kChunk);
    for (std::int64_t i = chunk * kChunk; i < end; i += 4) {
      const auto counter = static_cast<std::uint64_t>(i / 4);
      const PhiloxWords words = philox(seed, {static_cast<std::uint32_t>(counter),
                                              static_cast<std::uint32_t>(counter >> 32), 0, 0});
      float four[4];
      normal(words[0], words[1], &four[0], &four[1]);
      normal(words[2], words[3], &four[2], &four[3]);
      for (std::int64_t j = i; j < std::min(end, i + 4); ++j)
        values[static_cast<std::size_t>(j)] = four[j - i];
    }
  });
  fill(ctx, out, values);
}

}  // namespace tessera
