// The checks of the ops that turn heads by their positions.
#pragma once

#include "ops/op_scope.h"
#include "tessera/rotary.h"

namespace tessera {

// The frequencies fit the heads of x, which is named `arg`.
void check_rope(const OpScope& op, const Rope& rope, const char* arg, const Tensor& x);
// No position is negative, on the CPU. i32 or i64, [seq] or [batch, seq].
void check_positions(const OpScope& op, const Tensor& positions);

}  // namespace tessera
