// The checks that every op with a Weight argument makes.
#pragma once

#include "ops/op_scope.h"
#include "tessera/weight.h"

namespace tessera {

// The weight is well formed: codes, scales and zero points are there, of the dtypes and shapes that
// its format, sizes and group ask for, and each passes op.input(). Reads no element: cheap enough
// for every call. `arg` names the weight in the message.
void check_weight(const OpScope& op, const char* arg, const Weight& weight);

// Parts of it: the scales are given, with a dtype that the format takes; zero points only to
// formats that take them. `arg` names the scales, and the weight.
void check_scale_dtype(const OpScope& op, const char* arg, const Weight& weight);
void check_takes_zeros(const OpScope& op, const char* arg, const Weight& weight);

// Every scale is a finite number and every zero point a code; what is not is refused with its
// position. Reads all scales: for calls that read the weight once, such as dequantize. The weight
// is on the CPU and has passed check_weight().
void check_weight_values(const OpScope& op, const char* arg, const Weight& weight);

}  // namespace tessera
