#pragma once

#include "reference/array.h"

namespace tessera::reference {

// ids [...], table [rows, n] -> [..., n]
Array embedding(const Array& ids, const Array& table);

}  // namespace tessera::reference
