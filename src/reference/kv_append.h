#pragma once

#include "reference/array.h"

namespace tessera::reference {

// x [tokens, heads, dim] to the slots of pages [pages, page_size, heads, dim]; the rest of the
// pages stays.
Array kv_append(const Array& x, const Array& slots, const Array& pages);

}  // namespace tessera::reference
