#include "tessera/half.h"

namespace tessera {
namespace {

template <typename To, typename From, typename Convert>
std::vector<To> each(std::span<const From> values, Convert&& convert) {
  std::vector<To> result;
  result.reserve(values.size());
  for (const From value : values) result.push_back(convert(value));
  return result;
}

}  // namespace

std::vector<float> to_float(std::span<const Half> values) {
  return each<float>(values, [](Half value) { return to_float(value); });
}
std::vector<float> to_float(std::span<const BFloat16> values) {
  return each<float>(values, [](BFloat16 value) { return to_float(value); });
}
std::vector<Half> to_f16(std::span<const float> values) {
  return each<Half>(values, [](float value) { return to_f16(value); });
}
std::vector<BFloat16> to_bf16(std::span<const float> values) {
  return each<BFloat16>(values, [](float value) { return to_bf16(value); });
}

}  // namespace tessera
