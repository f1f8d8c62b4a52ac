// Parses texts of the command line. Each function throws an error that says what is accepted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/dtype.h"
#include "tessera/quant.h"

namespace tessera::bench {

struct Shape {
  std::int64_t first, second;
};

std::int64_t parse_size(const std::string& text);
Shape parse_shape(const std::string& text);  // "4096x14336"
DType parse_dtype(const std::string& text);  // f32, f16, bf16
// The same, and int8 and fp8, as --kv-dtype of the program takes them.
DType parse_kv_dtype(const std::string& text);
std::string_view kv_dtype_name(DType dtype);
// "int4", "int4:32" (groups of 32), "int4z" (with zero points), "dense".
QuantizeOptions parse_weights(const std::string& text);
// Every packed format, as parse_weights() takes it.
std::vector<std::string> packed_weights();

}  // namespace tessera::bench
