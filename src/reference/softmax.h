#pragma once

#include "reference/array.h"

namespace tessera::reference {

// Over the last dimension. A row of only -inf gives zeros; NaN and +inf give a row of NaN.
Array softmax(const Array& x, double scale);

}  // namespace tessera::reference
