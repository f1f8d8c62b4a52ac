// What the rest of the library needs to know about packed rows: their sizes, and how to read and
// write them.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/quant.h"
#include "tessera/weight.h"

namespace tessera::quant {

// The dtype of a packed format's codes and zero points: u8 (two codes to a byte), i8 or f8e4m3.
DType code_dtype(Format format);
// Bytes of one row of codes.
std::int64_t row_bytes(Format format, std::int64_t in_features);
// Scales of one row; group 0 is the whole row.
std::int64_t blocks_of_row(std::int64_t group, std::int64_t in_features);

// Whether the format takes scales of f32, f16 and bf16, and not of info(format).scale_dtype alone.
bool takes_float_scales(Format format);
bool takes_zeros(Format format);

// The group sizes that a format takes, and the same as text for a message.
bool accepts_group(Format format, std::int64_t group);
std::string accepted_groups(Format format);

// Weights [k_begin, k_end) of one row as f32, to out[0 .. k_end - k_begin). Any range inside the
// row, aligned to blocks and bytes or not; whole blocks at a time are fastest. The weight is dense
// or in the published layout, on the CPU, and has passed check_weight().
//
// The arithmetic is the same everywhere: the block's scale in f32 (nvfp4: scale * tensor_scale,
// rounded to f32), then value * scale, rounded to f32.
void decode_row(const Weight& weight, std::int64_t row, std::int64_t k_begin, std::int64_t k_end,
                float* out);

// Encodes a row, x [in_features], into the codes, scales and zero points of the weight: published
// layout, on the CPU, with its memory, tensor_scale included, in place. x is finite.
void encode_row(const Weight& weight, std::int64_t row, const float* x, ScaleSearch search);

}  // namespace tessera::quant
