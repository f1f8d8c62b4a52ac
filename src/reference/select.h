#pragma once

#include <cstdint>

#include "reference/array.h"

namespace tessera::reference {

struct Selected {
  Array values, indices;  // [..., k]
};
// The k largest elements of each row: NaN first, then by descending value, then by ascending index.
Selected top_k(const Array& x, std::int64_t k);

}  // namespace tessera::reference
