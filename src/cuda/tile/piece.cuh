// Sixteen bytes of elements, the widest load: eight f16 or bf16, or four f32. They stay packed in
// four registers, and are unpacked one by one when needed. (Or four bytes, if rows are aligned only
// to that.)
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "cuda/tile/element.cuh"

namespace tessera::cuda {

inline constexpr int kPieceBytes = 16;

// Two elements in one word, the first in the low half; ptxas makes it a single conversion.
template <typename T>
__device__ std::uint32_t pack(float first, float second) {
  return from_f32<T>(first).bits | std::uint32_t{from_f32<T>(second).bits} << 16;
}

template <typename T, int kBytes = kPieceBytes>
struct Piece {
  static constexpr int kSize = kBytes / static_cast<int>(sizeof(T)), kWords = kBytes / 4;
  std::uint32_t words[kWords] = {};

  __device__ float operator[](int i) const {
    if constexpr (sizeof(T) == 4) {
      return std::bit_cast<float>(words[i]);
    } else if constexpr (std::is_same_v<T,
                                        BFloat16>) {  // the upper half of an f32: one instruction
      return std::bit_cast<float>(i % 2 ? words[i / 2] & 0xffff0000u : words[i / 2] << 16);
    } else {
      return to_f32(T{static_cast<std::uint16_t>(words[i / 2] >> (i % 2 * 16))});
    }
  }

  // fn(i) is the new element i; it is rounded to T.
  template <typename F>
  __device__ void set(F&& fn) {
    if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) words[i] = std::bit_cast<std::uint32_t>(fn(i));
    } else {
#pragma unroll
      for (int i = 0; i < kWords; ++i) words[i] = pack<T>(fn(2 * i), fn(2 * i + 1));
    }
  }
};

// `from` and `to` are aligned to kBytes.
template <int kBytes = kPieceBytes, typename T>
__device__ Piece<T, kBytes> load_piece(const T* from) {
  if constexpr (kBytes == 4) {
    return {{*reinterpret_cast<const std::uint32_t*>(from)}};
  } else {
    static_assert(kBytes == 16);
    const uint4 words = *reinterpret_cast<const uint4*>(from);
    return {{words.x, words.y, words.z, words.w}};
  }
}
template <typename T, int kBytes>
__device__ void store_piece(T* to, const Piece<T, kBytes>& piece) {
  if constexpr (kBytes == 4) {
    *reinterpret_cast<std::uint32_t*>(to) = piece.words[0];
  } else {
    *reinterpret_cast<uint4*>(to) =
        uint4{piece.words[0], piece.words[1], piece.words[2], piece.words[3]};
  }
}

inline bool on_piece(const void* data, int bytes = kPieceBytes) {
  return reinterpret_cast<std::uintptr_t>(data) % static_cast<unsigned>(bytes) == 0;
}

// Whether every row of the last dimension is aligned to a piece. A tensor that is not given has no
// rows.
inline bool rows_on_pieces(const Tensor& tensor, int bytes = kPieceBytes) {
  for (int d = 0; d < tensor.rank - 1; ++d) {
    const bool moves = tensor.shape[d] > 1;
    if (moves && tensor.strides[d] * size_of(tensor.dtype) % bytes != 0) return false;
  }
  return on_piece(tensor.data, bytes);
}

}  // namespace tessera::cuda
