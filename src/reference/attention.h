// Attention and its gradients in float64, straight from the formulas, with the whole matrix of
// weights in memory.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/array.h"
#include "tessera/attention.h"

namespace tessera::reference {

// Like AttentionArgs, with arrays instead of tensors.
struct AttentionInputs {
  Array q{}, k{}, v{};
  Mask mask{};
  double scale = 0;  // 0: 1 / sqrt(dim)
  double softcap = 0;
  Dropout dropout{};
  std::vector<std::int64_t> q_offsets{}, k_offsets{};
  Array page_table{}, lengths{}, holes{};
  Array inv_freq{};
  RopeStyle rope_style = RopeStyle::half_split;
};

struct AttentionResult {
  Array out, lse;
};
AttentionResult attention(const AttentionInputs& in);

struct AttentionGradients {
  Array d_q, d_k, d_v;
};
AttentionGradients attention_backward(const AttentionInputs& in, const Array& d_out);

// Whether query i, at position p, may see key j. This repeats the definitions of mask.h and uses
// only the mask's parameters.
bool sees(const Mask& mask, std::int64_t i, std::int64_t p, std::int64_t j);

}  // namespace tessera::reference
