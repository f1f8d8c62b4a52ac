// Checks shared by the ops that rotate heads by their positions.
#pragma once

#include "ops/op_scope.h"
#include "tessera/rotary.h"

namespace tessera {

// Checks that the frequencies fit the heads of x. `arg` names x in the message.
void check_rope(const OpScope& op, const Rope& rope, const char* arg, const Tensor& x);
// Checks on the CPU that no position is negative. positions is i32 or i64, [seq] or [batch, seq].
void check_positions(const OpScope& op, const Tensor& positions);

}  // namespace tessera
