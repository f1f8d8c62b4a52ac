// The checks that every op with a Weight argument makes.
#pragma once

#include "ops/op_scope.h"
#include "tessera/weight.h"

namespace tessera {

// How messages name a weight and its tensors. Constants, so that a valid call makes no text.
struct WeightNames {
  const char *weight, *data, *scales, *zeros, *row_scales;
};
inline constexpr WeightNames kWeightNames{"weight", "weight.data", "weight.scales", "weight.zeros",
                                          "weight.row_scales"};

// Checks that the weight is well formed: it has codes, scales and zero points of the dtypes and
// shapes that follow from its format, sizes and group, and each passes op.input(). This reads no
// element, so it is cheap enough for every call.
void check_weight(const OpScope& op, const WeightNames& names, const Weight& weight);

// Two parts of check_weight(). The first checks that the scales are given and have a dtype that the
// format takes; `arg` names the scales. The second checks that only formats with zero points have
// them; `arg` names the weight.
void check_scale_dtype(const OpScope& op, const char* arg, const Weight& weight);
void check_takes_zeros(const OpScope& op, const char* arg, const Weight& weight);

// Checks that every scale is finite and that every zero point is a code. A bad value is refused
// with its position. This reads all scales, so it is meant for calls that read the whole weight
// anyway, such as dequantize. The weight must be on the CPU and have passed check_weight().
void check_weight_values(const OpScope& op, const char* arg, const Weight& weight);

}  // namespace tessera
