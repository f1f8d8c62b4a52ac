// Texts of the command line as values; each throws, with what is accepted, where it cannot.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/dtype.h"

namespace tessera::bench {

struct Shape {
  std::int64_t first, second;
};

std::int64_t parse_size(const std::string& text);
Shape parse_shape(const std::string& text);  // "4096x14336"
DType parse_dtype(const std::string& text);  // f32, f16, bf16

}  // namespace tessera::bench
