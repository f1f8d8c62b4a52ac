#include "reference/quant.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

namespace tessera::reference {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Element `index` of a row of the tensor, whose element type is T.
template <typename T>
T element(const Tensor& tensor, std::int64_t row, std::int64_t index) {
  T value;
  const auto offset = (row * tensor.strides[0] + index) * static_cast<std::int64_t>(sizeof(T));
  std::memcpy(&value, static_cast<const char*>(tensor.data) + offset, sizeof(T));
  return value;
}

std::int64_t block_of(const Weight& weight, std::int64_t k) {
  return weight.group == 0 ? 0 : k / weight.group;
}

}  // namespace

double small_float(std::uint32_t code, int exponent_bits, int mantissa_bits, int bias) {
  const std::uint32_t mantissa = code % (1u << mantissa_bits);
  const std::uint32_t exponent = (code >> mantissa_bits) % (1u << exponent_bits);
  const bool negative = (code >> (mantissa_bits + exponent_bits)) & 1u;
  const double fraction = std::ldexp(static_cast<double>(mantissa), -mantissa_bits);
  const double magnitude = exponent == 0
                               ? std::ldexp(fraction, 1 - bias)
                               : std::ldexp(1.0 + fraction, static_cast<int>(exponent) - bias);
  return negative ? -magnitude : magnitude;
}

double e2m1_value(int code) { return small_float(static_cast<std::uint32_t>(code), 2, 1, 1); }

double e4m3_value(int code) {
  if ((code & 0x7f) == 0x7f) return kNaN;
  return small_float(static_cast<std::uint32_t>(code), 4, 3, 7);
}

double e8m0_value(int code) { return code == 255 ? kNaN : std::ldexp(1.0, code - 127); }

double nf4_value(int code) {
  // The values as bitsandbytes prints them, in its order.
  static constexpr float kTable[] = {
      -1.0f,
      -0.6961928009986877f,
      -0.5250730514526367f,
      -0.39491748809814453f,
      -0.28444138169288635f,
      -0.18477343022823334f,
      -0.09105003625154495f,
      0.0f,
      0.07958029955625534f,
      0.16093020141124725f,
      0.24611230194568634f,
      0.33791524171829224f,
      0.44070982933044434f,
      0.5626170039176941f,
      0.7229568362236023f,
      1.0f,
  };
  return kTable[code];
}

double f16_value(std::uint16_t bits) {
  if ((bits & 0x7c00u) == 0x7c00u) {
    if (bits & 0x3ffu) return kNaN;
    return bits & 0x8000u ? -INFINITY : INFINITY;
  }
  return small_float(bits, 5, 10, 15);
}

double bf16_value(std::uint16_t bits) {
  if ((bits & 0x7f80u) == 0x7f80u) {
    if (bits & 0x7fu) return kNaN;
    return bits & 0x8000u ? -INFINITY : INFINITY;
  }
  return small_float(bits, 8, 7, 127);
}

int default_zero(Format format) { return format == Format::int4 ? 8 : 0; }

std::vector<double> code_values(Format format) { return code_values(format, default_zero(format)); }

std::vector<double> code_values(Format format, int zero) {
  std::vector<double> values;
  const auto fill = [&](int codes, auto value) {
    for (int code = 0; code < codes; ++code) values.push_back(value(code));
  };
  switch (format) {
    case Format::dense:
      break;
    case Format::nvfp4:
    case Format::mxfp4:
      fill(16, e2m1_value);
      break;
    case Format::nf4:
      fill(16, nf4_value);
      break;
    case Format::int4:
      fill(16, [zero](int code) { return static_cast<double>(code - zero); });
      break;
    case Format::int8:
      fill(256, [zero](int code) {
        return static_cast<double>((code < 128 ? code : code - 256) - zero);
      });
      break;
    case Format::fp8:
      fill(256, e4m3_value);
      break;
  }
  return values;
}

int nearest_code(const std::vector<double>& values, double x) {
  double low = INFINITY, high = -INFINITY;
  for (const double value : values) {
    low = std::fmin(low, value);  // fmin and fmax ignore NaN
    high = std::fmax(high, value);
  }
  // Beyond the ends, distances are large and would round to the same number.
  const double target = std::fmin(std::fmax(x, low), high);
  std::size_t best = values.size();
  for (std::size_t code = 0; code < values.size(); ++code) {
    const double value = values[code];
    if (std::isnan(value)) continue;
    if (best == values.size()) {
      best = code;
      continue;
    }
    const double distance = std::abs(value - target), least = std::abs(values[best] - target);
    const bool better_tie = value == values[best]
                                ? std::signbit(value) == std::signbit(x) &&
                                      std::signbit(values[best]) != std::signbit(x)
                                : code % 2 == 0;
    if (distance < least || (distance == least && better_tie)) best = code;
  }
  return static_cast<int>(best);
}

int code_at(const Weight& weight, std::int64_t n, std::int64_t k) {
  switch (weight.format) {
    case Format::nvfp4:
    case Format::mxfp4:
    case Format::int4: {  // the lower k in the low half of the byte
      const int byte = element<std::uint8_t>(weight.data, n, k / 2);
      return k % 2 == 0 ? byte % 16 : byte / 16;
    }
    case Format::nf4: {  // the lower k in the high half
      const int byte = element<std::uint8_t>(weight.data, n, k / 2);
      return k % 2 == 0 ? byte / 16 : byte % 16;
    }
    default:
      return element<std::uint8_t>(weight.data, n, k);
  }
}

int zero_at(const Weight& weight, std::int64_t n, std::int64_t k) {
  if (!weight.zeros.defined()) return default_zero(weight.format);
  const int byte = element<std::uint8_t>(weight.zeros, n, block_of(weight, k));
  return weight.format == Format::int8 && byte >= 128 ? byte - 256 : byte;
}

double scale_at(const Weight& weight, std::int64_t n, std::int64_t k) {
  const std::int64_t block = block_of(weight, k);
  switch (weight.format) {
    case Format::nvfp4:
      return e4m3_value(element<std::uint8_t>(weight.scales, n, block)) *
             static_cast<double>(weight.tensor_scale);
    case Format::mxfp4:
      return e8m0_value(element<std::uint8_t>(weight.scales, n, block));
    default:
      break;
  }
  switch (weight.scales.dtype) {
    case DType::bf16:
      return bf16_value(element<std::uint16_t>(weight.scales, n, block));
    case DType::f16:
      return f16_value(element<std::uint16_t>(weight.scales, n, block));
    default:
      return element<float>(weight.scales, n, block);
  }
}

Array dequantize(const Weight& weight) {
  Array result({weight.out_features, weight.in_features});
  std::map<int, std::vector<double>> values;  // for each zero point
  for (std::int64_t n = 0; n < weight.out_features; ++n) {
    for (std::int64_t k = 0; k < weight.in_features; ++k) {
      const int zero = zero_at(weight, n, k);
      std::vector<double>& of_zero = values[zero];
      if (of_zero.empty()) of_zero = code_values(weight.format, zero);
      const auto code = static_cast<std::size_t>(code_at(weight, n, k));
      result.at(n, k) = of_zero[code] * scale_at(weight, n, k);
    }
  }
  return result;
}

}  // namespace tessera::reference
