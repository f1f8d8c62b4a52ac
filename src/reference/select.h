#pragma once

#include <cstdint>

#include "reference/array.h"

namespace tessera::reference {

struct Selected {
  Array values, indices;  // [..., k]
};
// The k largest of each row: NaN first, then by falling value, then by rising index.
Selected top_k(const Array& x, std::int64_t k);

}  // namespace tessera::reference
