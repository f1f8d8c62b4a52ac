// The distance of a result from its reference.
#pragma once

#include "reference/array.h"

namespace tessera::reference {

// ||actual - expected|| / ||expected||
double relative_error(const Array& actual, const Array& expected);

}  // namespace tessera::reference
