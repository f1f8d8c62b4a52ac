// Decodes blocks of a weight tile (weight_tiles.h) into vectors: as small integers for the 8-bit
// dot product, or as f32.
//
// A vector of 32-bit lanes holds kSliceN of the tile's sixteen rows: a slice. Slice s of a 64-byte
// step starts at byte 4 * kSliceN * s.
//
//   format   integer of a code        value = integer * scale * factor
//   nvfp4    2 * e2m1, -12 .. 12      scale: E4M3 * 2^-8    factor: 2^8 / 2 * tensor_scale
//   mxfp4    2 * e2m1                 scale: E8M0           factor: 1 / 2
//   nf4      127 * table, rounded     scale: f32            factor: 1 / 127
//   int4     code - zero, -15 .. 15   scale: a float        factor: 1
//   int8     code                     scale: a float        factor: 1
//
// All integers are exact except those of nf4, whose error is up to half of 1/127 of the block's
// scale; f32 values of nf4 come from the table itself. Factors are applied at the end of the
// product. So are the zero points of int8, because code - zero would not fit into a byte.

// Per-target include guard: Highway includes this file once for each SIMD target.
#if defined(TESSERA_CPU_TILE_CODEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_CPU_TILE_CODEC_INL_H_
#undef TESSERA_CPU_TILE_CODEC_INL_H_
#else
#define TESSERA_CPU_TILE_CODEC_INL_H_
#endif

#include <hwy/highway.h>

#include <array>
#include <cstdint>

#include "cpu/linear/weight_tiles.h"
#include "cpu/simd/dot8-inl.h"
#include "cpu/simd/fp8-inl.h"
#include "cpu/simd/vector-inl.h"
#include "quant/e2m1.h"
#include "quant/nf4.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

// Sixteen lanes, or on narrower targets a slice of them.
using F32 = hn::CappedTag<float, kWeightTileN>;
using I32 = hn::RebindToSigned<F32>;
using U32 = hn::RebindToUnsigned<F32>;
using VF32 = hn::Vec<F32>;
using VI32 = hn::Vec<I32>;

constexpr int kSlices = kWeightTileN / hn::MaxLanes(F32());
constexpr int kSliceN = hn::MaxLanes(F32());
constexpr int kSteps = kBlock / 4;  // dot products of four weights in a block

constexpr Dot8Range range_of(Format format) {
  return format == Format::nf4 || format == Format::int8 ? Dot8Range::wide : Dot8Range::narrow;
}

constexpr std::int64_t block_bytes(Format format) {
  return kWeightTileN * kBlock * (format == Format::int8 ? 8 : 4) / 8;
}

// The factor of the table above: integer * scale is multiplied by it at the end.
inline float value_factor(const Weight& weight) {
  switch (weight.format) {
    case Format::nvfp4:
      return 0x1p8f * 0.5f * weight.tensor_scale;
    case Format::mxfp4:
      return 0.5f;
    case Format::nf4:
      return 1.f / 127.f;
    default:
      return 1.f;
  }
}

// ---- scales ------------------------------------------------------------------------------------

// Scales are f32, f16 or bf16, the same for the whole weight, so the branch is always predicted.
HWY_INLINE VF32 load_float_scales(const Tile& tile, std::int64_t at) {
  const F32 d;
  if (tile.scale_dtype == DType::f32) {
    return load_f32(d, reinterpret_cast<const float*>(tile.scales) + at);
  }
  if (tile.scale_dtype == DType::f16) {
    return load_f32(d, reinterpret_cast<const Half*>(tile.scales) + at);
  }
  return load_f32(d, reinterpret_cast<const BFloat16*>(tile.scales) + at);
}

// Scale number `index` of each row of the slice.
template <Format format>
HWY_INLINE VF32 load_scales(const Tile& tile, std::int64_t index, int slice) {
  const F32 d;
  const std::int64_t at = index * kWeightTileN + slice * kSliceN;
  if constexpr (format == Format::nvfp4) {
    return finite_e4m3_to_f32(d, tile.scales + at);  // prepare() refuses others
  } else if constexpr (format == Format::mxfp4) {
    // An E8M0 scale is the exponent of an f32, except 2^-127, which is a subnormal there.
    const hn::Rebind<std::uint8_t, F32> d8;
    const U32 du;
    const auto bits = hn::ShiftLeft<23>(hn::PromoteTo(du, hn::LoadU(d8, tile.scales + at)));
    return hn::BitCast(d, hn::Max(bits, hn::Set(du, 0x00400000u)));
  } else if constexpr (format == Format::int4 || format == Format::int8) {
    return load_float_scales(tile, at);
  } else {
    return load_f32(d, reinterpret_cast<const float*>(tile.scales) + at);
  }
}

// The scales of the first and the second half of a block. They differ only for nvfp4.
template <Format format>
HWY_INLINE void load_block_scales(const Tile& tile, std::int64_t block, int slice,
                                  VF32 (&scales)[2]) {
  if constexpr (format == Format::nvfp4) {
    scales[0] = load_scales<format>(tile, 2 * block, slice);
    scales[1] = load_scales<format>(tile, 2 * block + 1, slice);
  } else {
    scales[0] = scales[1] = load_scales<format>(tile, block / tile.blocks_per_scale, slice);
  }
}

// ---- integers ----------------------------------------------------------------------------------

using ByteTable = std::array<std::uint8_t, 16>;

#if HWY_TARGET == HWY_SCALAR  // one lane: no vectors of bytes

// Looks up the lower four bits of each byte in the table.
HWY_INLINE VI32 look_up(const ByteTable& table, VI32 codes) {
  std::uint32_t from = static_cast<std::uint32_t>(codes.raw), to = 0;
  for (int shift = 0; shift < 32; shift += 8) {
    to |= static_cast<std::uint32_t>(table[(from >> shift) & 15u]) << shift;
  }
  return hn::Set(I32(), static_cast<std::int32_t>(to));
}

HWY_INLINE VI32 add_bytes(VI32 a, VI32 b) {
  std::uint32_t x = static_cast<std::uint32_t>(a.raw), y = static_cast<std::uint32_t>(b.raw);
  std::uint32_t to = 0;
  for (int shift = 0; shift < 32; shift += 8) to |= (((x >> shift) + (y >> shift)) & 255u) << shift;
  return hn::Set(I32(), static_cast<std::int32_t>(to));
}

// Byte j of each lane, moved to the top, with zeros below.
template <int j>
HWY_INLINE VI32 top_byte(VI32 v) {
  return hn::And(hn::ShiftLeft<24 - 8 * j>(v),
                 hn::Set(I32(), static_cast<std::int32_t>(0xff000000u)));
}

#else

using U8 = hn::Repartition<std::uint8_t, I32>;

// Looks up the lower four bits of each byte in the table.
HWY_INLINE VI32 look_up(const ByteTable& table, VI32 codes) {
  const auto bytes = hn::LoadDup128(U8(), table.data());
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
  // The 64 bytes to choose from are four copies of the table, so bits above the fourth do not
  // matter.
  return VI32{_mm512_permutexvar_epi8(codes.raw, bytes.raw)};
#else
  const auto index = hn::And(hn::BitCast(U8(), codes), hn::Set(U8(), 15));
  return hn::BitCast(I32(), hn::TableLookupBytes(bytes, index));
#endif
}

HWY_INLINE VI32 add_bytes(VI32 a, VI32 b) {
  return hn::BitCast(I32(), hn::Add(hn::BitCast(U8(), a), hn::BitCast(U8(), b)));
}

// Byte j of each lane, moved to the top, with zeros below.
template <int j>
HWY_INLINE VI32 top_byte(VI32 v) {
  alignas(16) static constexpr ByteTable kFrom = {0x80, 0x80, 0x80, j,      // 0x80: a zero
                                                  0x80, 0x80, 0x80, j + 4,  //
                                                  0x80, 0x80, 0x80, j + 8,  //
                                                  0x80, 0x80, 0x80, j + 12};
  const auto from = hn::LoadDup128(U8(), kFrom.data());
  return hn::BitCast(I32(), hn::TableLookupBytesOr0(hn::BitCast(U8(), v), from));
}

#endif

// The integers of the sixteen codes of a 4-bit format, plus offset. Those of int4 are relative
// to 8.
template <Format format, int offset>
constexpr ByteTable integer_table() {
  ByteTable table{};
  for (std::size_t code = 0; code < 16; ++code) {
    const float value = format == Format::nf4    ? 127 * kNf4Values[code]
                        : format == Format::int4 ? static_cast<float>(code) - 8
                                                 : 2 * kE2M1Values[code];
    const int nearest = static_cast<int>(value + (value < 0 ? -0.5f : 0.5f));
    table[code] = static_cast<std::uint8_t>(nearest + offset);
  }
  return table;
}

// The zero point of each row of the slice. The format stores it as T.
template <typename T>
HWY_INLINE VI32 load_zeros(const Tile& tile, std::int64_t block, int slice) {
  const hn::Rebind<T, F32> d8;
  const std::int64_t at = block / tile.blocks_per_scale * kWeightTileN + slice * kSliceN;
  return hn::PromoteTo(I32(), hn::LoadU(d8, reinterpret_cast<const T*>(tile.zeros) + at));
}

// int4: 8 - zero point of each row of the slice, in every byte.
HWY_INLINE VI32 load_zero_shift(const Tile& tile, std::int64_t block, int slice) {
  const auto zeros = load_zeros<std::uint8_t>(tile, block, slice);
  const auto shift = hn::And(hn::Sub(hn::Set(I32(), 8), zeros), hn::Set(I32(), 255));
  return hn::Mul(shift, hn::Set(I32(), 0x01010101));
}

// A step of a block: four bytes of each row of the slice.
template <Format format>
HWY_INLINE VI32 load_step(const Tile& tile, std::int64_t block, int slice, int step) {
  const std::uint8_t* from = tile.codes + block * block_bytes(format) + step * kStepBytes;
  return hn::Load(I32(), reinterpret_cast<const std::int32_t*>(from) + slice * kSliceN);
}

// The 32 codes of a block: steps[s] has weights 4 s .. 4 s + 3 of each row of the slice, one byte
// each. A 4-bit code is the lower half of its byte.
template <Format format>
HWY_INLINE void load_codes(const Tile& tile, std::int64_t block, int slice, VI32 (&steps)[kSteps]) {
  if constexpr (format == Format::int8) {
    for (int s = 0; s < kSteps; ++s) steps[s] = load_step<format>(tile, block, slice, s);
  } else {
    for (int s = 0; s < kSteps; s += 2) {
      steps[s] = load_step<format>(tile, block, slice, s / 2);
      steps[s + 1] = hn::ShiftRight<4>(steps[s]);
    }
  }
}

// The integers of a block, plus offset.
template <Format format, int offset>
HWY_INLINE void decode_block(const Tile& tile, std::int64_t block, int slice,
                             VI32 (&steps)[kSteps]) {
  load_codes<format>(tile, block, slice, steps);
  if constexpr (format == Format::int8) {
    static_assert(offset == 0 || offset == 128);
    if (offset == 0) return;
    const auto upper_bits = hn::Set(I32(), static_cast<std::int32_t>(0x80808080u));
    for (VI32& step : steps) step = hn::Xor(step, upper_bits);  // adds 128 to each byte
  } else {
    alignas(16) static constexpr ByteTable kTable = integer_table<format, offset>();
    for (VI32& step : steps) step = look_up(kTable, step);
    if (format != Format::int4 || !tile.zeros) return;
    const VI32 shift = load_zero_shift(tile, block, slice);
    for (VI32& step : steps) step = add_bytes(step, shift);
  }
}

// ---- f32 ---------------------------------------------------------------------------------------

// The factor for the f32 values below: value * scale is multiplied by it at the end.
inline float f32_factor(const Weight& weight) {
  const bool done = weight.format == Format::nf4 || weight.format == Format::mxfp4;
  return done ? 1.f : 0x1p-24f * value_factor(weight);
}

// Makes a sum of the f32 values below ready for its scale. The scales of mxfp4 go up to 2^127, so
// its factor cannot wait until the end.
template <Format format>
HWY_INLINE VF32 before_scale(VF32 sum) {
  if constexpr (format == Format::mxfp4) return hn::Mul(sum, hn::Set(F32(), 0x1p-24f * 0.5f));
  return sum;
}

// The zeros that byte_to_f32() subtracts: 2^24 times the zero points of int8, 0 for other formats.
template <Format format>
HWY_INLINE VF32 load_f32_zeros(const Tile& tile, std::int64_t block, int slice) {
  const F32 d;
  if (format != Format::int8 || !tile.zeros) return hn::Zero(d);
  return hn::ConvertTo(d, hn::ShiftLeft<24>(load_zeros<std::int8_t>(tile, block, slice)));
}

// Byte j of each lane as f32: 2^24 times the integer, which saves a shift. For nf4 it is the
// table's value of the code.
template <Format format, int j>
HWY_INLINE VF32 byte_to_f32(VI32 step, [[maybe_unused]] VF32 zeros) {
  const F32 d;
  if constexpr (format == Format::nf4) {
    const auto index = hn::And(hn::ShiftRight<8 * j>(step), hn::Set(I32(), 15));
    if constexpr (kSliceN == 16) {
      return hn::TableLookupLanes(hn::LoadU(d, kNf4Values.data()), hn::IndicesFromVec(d, index));
    } else {
      return hn::GatherIndex(d, kNf4Values.data(), index);
    }
  } else if constexpr (format == Format::int8) {
    return hn::Sub(hn::ConvertTo(d, top_byte<j>(step)), zeros);
  } else {
    return hn::ConvertTo(d, top_byte<j>(step));
  }
}

// The input of byte_to_f32(): the integers of a block, or the codes of nf4.
template <Format format>
HWY_INLINE void load_f32_codes(const Tile& tile, std::int64_t block, int slice,
                               VI32 (&steps)[kSteps]) {
  if constexpr (format == Format::nf4) {
    load_codes<format>(tile, block, slice, steps);
  } else {
    decode_block<format, 0>(tile, block, slice, steps);
  }
}

// before_scale(byte_to_f32) * scale of the 32 weights of a block: weight k of each row of the slice
// to out + k * stride.
template <Format format>
HWY_INLINE void decode_block_f32(const Tile& tile, std::int64_t block, int slice, float* out,
                                 std::int64_t stride) {
  const F32 d;
  VI32 steps[kSteps];
  load_f32_codes<format>(tile, block, slice, steps);
  VF32 scales[2];
  load_block_scales<format>(tile, block, slice, scales);
  const VF32 zeros = load_f32_zeros<format>(tile, block, slice);
  for (int s = 0; s < kSteps; ++s) {
    const VF32 scale = scales[s / (kSteps / 2)];
    const VF32 w[4] = {
        byte_to_f32<format, 0>(steps[s], zeros), byte_to_f32<format, 1>(steps[s], zeros),
        byte_to_f32<format, 2>(steps[s], zeros), byte_to_f32<format, 3>(steps[s], zeros)};
    for (int j = 0; j < 4; ++j) {
      hn::StoreU(hn::Mul(before_scale<format>(w[j]), scale), d, out + (4 * s + j) * stride);
    }
  }
}

// Calls fn(std::integral_constant<Format, f>) for a format that has tiles.
template <typename F>
HWY_INLINE void with_tile_format(Format format, F&& fn) {
  switch (format) {
    case Format::nvfp4:
      return fn(std::integral_constant<Format, Format::nvfp4>());
    case Format::mxfp4:
      return fn(std::integral_constant<Format, Format::mxfp4>());
    case Format::nf4:
      return fn(std::integral_constant<Format, Format::nf4>());
    case Format::int4:
      return fn(std::integral_constant<Format, Format::int4>());
    default:
      return fn(std::integral_constant<Format, Format::int8>());
  }
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
