// Every way to quantize, for tests that hold for all of them.
#pragma once

#include <string>
#include <vector>

#include "tessera/quant.h"

namespace tessera::test {

inline std::string text(const QuantizeOptions& options) {
  std::string result(name(options.format));
  if (options.group >= 0) result += " group " + std::to_string(options.group);
  if (options.zero_point) result += " zero point";
  return result + (options.search == ScaleSearch::from_max ? " from max" : " least squares");
}

// Each format and group, with and without zero points, for one search.
inline std::vector<QuantizeOptions> every_format(ScaleSearch search) {
  std::vector<QuantizeOptions> all;
  for (const Format format : {Format::nvfp4, Format::mxfp4, Format::nf4, Format::fp8}) {
    all.push_back({.format = format, .search = search});
  }
  // A whole row, the smallest group, an unusual one, and those that checkpoints use.
  for (const std::int64_t group : {0, 16, 32, 48, 64, 128}) {
    for (const bool zero_point : {false, true}) {
      all.push_back(
          {.format = Format::int4, .group = group, .zero_point = zero_point, .search = search});
    }
  }
  for (const std::int64_t group : {0, 7, 32, 128}) {
    all.push_back({.format = Format::int8, .group = group, .search = search});
  }
  return all;
}

inline std::vector<QuantizeOptions> every_way() {
  std::vector<QuantizeOptions> all = every_format(ScaleSearch::least_squares);
  for (const QuantizeOptions& options : every_format(ScaleSearch::from_max)) all.push_back(options);
  return all;
}

// All bytes of codes, scales and zero points, and the tensor scale.
inline std::vector<unsigned char> bytes_of(const Weight& weight) {
  std::vector<unsigned char> bytes;
  for (const Tensor* part : {&weight.data, &weight.scales, &weight.zeros}) {
    const auto* begin = part->ptr<const unsigned char>();
    bytes.insert(bytes.end(), begin, begin + part->bytes());
  }
  const auto* scale = reinterpret_cast<const unsigned char*>(&weight.tensor_scale);
  bytes.insert(bytes.end(), scale, scale + sizeof(float));
  return bytes;
}

}  // namespace tessera::test
