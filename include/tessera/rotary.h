// Rotary position embedding.
//
// Threads: any. A call has its Context to itself (tessera/context.h).
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera {

enum class RopeStyle : std::uint8_t {
  half_split,   // pairs (i, i + dims/2): GPT-NeoX, Llama from Hugging Face
  interleaved,  // pairs (2i, 2i + 1): GPT-J, the original Llama
};

// Pair i of a head at position p is rotated by p * inv_freq[i]. Elements from dims on pass through
// (partial rotary). A table of frequencies covers every published scaling; one base would not.
struct Rope {
  Tensor inv_freq{};  // f32 [dims / 2]
  RopeStyle style = RopeStyle::half_split;

  bool defined() const { return inv_freq.defined(); }
  std::int64_t dims() const { return 2 * inv_freq.shape[0]; }
};

// theta^(-2i / dims) for i in [0, dims / 2).
std::vector<float> rope_inv_freq(std::int64_t dims, double theta = 10000.0);

struct RotaryArgs {
  Tensor x{};          // [batch, seq, heads, dim] f32, f16 or bf16
  Tensor positions{};  // i32 or i64, [seq] or [batch, seq]; not negative
  Rope rope{};         // at most dim dims
  Tensor out{};        // like x; may be the same view
};
// Rotates each row of x by its position. Angles are exact to f32 for positions of many millions. On
// the CPU, a negative position is refused with its index. A GPU, where checking would mean waiting,
// rotates the other way.
void rotary(Context& ctx, const RotaryArgs& args);

}  // namespace tessera
