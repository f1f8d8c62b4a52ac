// Number formats in float64, straight from their definitions. This is slow, and shares nothing with
// src/quant.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/array.h"
#include "tessera/weight.h"

namespace tessera::reference {

// The value of a code of a small float: sign, `exponent_bits`, `mantissa_bits`, from high to low.
// Exponent 0 holds zero and the subnormals. The caller handles NaN and infinity.
double small_float(std::uint32_t code, int exponent_bits, int mantissa_bits, int bias);

double e2m1_value(int code);           // 16 codes
double e4m3_value(int code);           // 256 codes; NaN for 0x7f and 0xff
double e8m0_value(int code);           // 256 codes; NaN for 0xff
double nf4_value(int code);            // 16 codes
double f16_value(std::uint16_t bits);  // infinities and NaN too
double bf16_value(std::uint16_t bits);

// The values of all codes of a format, code 0 first, for a scale of 1. Codes of int8 are bytes, so
// 128 .. 255 are negative. `zero` is the zero point of int4 or int8.
std::vector<double> code_values(Format format, int zero);
std::vector<double> code_values(Format format);  // of a weight without zero points
int default_zero(Format format);                 // 8 for int4, 0 for all others

// The code of the value nearest to x, found by trying all. If two values are equally near, the even
// code wins. If two codes have the same value (0 and -0), the one with the sign of x wins. Codes of
// NaN are never chosen.
int nearest_code(const std::vector<double>& values, double x);

// Parts of weight [n, k] of a packed matrix [N, K], in the published layout, on the CPU.
int code_at(const Weight& weight, std::int64_t n, std::int64_t k);
int zero_at(const Weight& weight, std::int64_t n, std::int64_t k);
// The scale of one weight, including the tensor_scale of nvfp4.
double scale_at(const Weight& weight, std::int64_t n, std::int64_t k);

// [out, in]
Array dequantize(const Weight& weight);

}  // namespace tessera::reference
