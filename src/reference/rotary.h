#pragma once

#include "reference/array.h"
#include "tessera/rotary.h"

namespace tessera::reference {

// x [batch, seq, heads, dim], positions [seq] or [batch, seq], inv_freq [dims / 2].
Array rotary(const Array& x, const Array& positions, const Array& inv_freq, RopeStyle style);

}  // namespace tessera::reference
