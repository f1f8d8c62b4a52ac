// Sixteen bytes of elements, the widest load there is: eight f16 or bf16, or four f32. They stay
// packed in four registers, and are taken out one by one when they are needed.
#pragma once

#include <bit>
#include <cstdint>

#include "cuda/element.cuh"

namespace tessera::cuda {

inline constexpr int kPieceBytes = 16;

// Two elements in one word, the first in the low half; ptxas makes one conversion of it.
template <typename T>
__device__ std::uint32_t pack(float first, float second) {
  return from_f32<T>(first).bits | std::uint32_t{from_f32<T>(second).bits} << 16;
}

template <typename T>
struct Piece {
  static constexpr int kSize = kPieceBytes / static_cast<int>(sizeof(T));
  std::uint32_t words[4] = {};

  __device__ float operator[](int i) const {
    if constexpr (sizeof(T) == 4) {
      return std::bit_cast<float>(words[i]);
    } else {
      return to_f32(T{static_cast<std::uint16_t>(words[i / 2] >> (i % 2 * 16))});
    }
  }

  // fn(i) is the new element i; it is rounded to T.
  template <typename F>
  __device__ void set(F&& fn) {
    if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = std::bit_cast<std::uint32_t>(fn(i));
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = pack<T>(fn(2 * i), fn(2 * i + 1));
    }
  }
};

// `from` and `to` lie on 16 bytes.
template <typename T>
__device__ Piece<T> load_piece(const T* from) {
  const uint4 words = *reinterpret_cast<const uint4*>(from);
  return {{words.x, words.y, words.z, words.w}};
}
template <typename T>
__device__ void store_piece(T* to, const Piece<T>& piece) {
  *reinterpret_cast<uint4*>(to) =
      uint4{piece.words[0], piece.words[1], piece.words[2], piece.words[3]};
}

inline bool on_piece(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % kPieceBytes == 0;
}

// Every row of the last dimension starts on a piece. A tensor that is not given has no rows.
inline bool rows_on_pieces(const Tensor& tensor) {
  for (int d = 0; d < tensor.rank - 1; ++d) {
    const bool moves = tensor.shape[d] > 1;
    if (moves && tensor.strides[d] * size_of(tensor.dtype) % kPieceBytes != 0) return false;
  }
  return on_piece(tensor.data);
}

}  // namespace tessera::cuda
