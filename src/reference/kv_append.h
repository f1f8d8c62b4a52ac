#pragma once

#include "reference/array.h"

namespace tessera::reference {

// Writes x [tokens, heads, dim] to the slots of pages [pages, page_size, heads, dim]. The rest of
// the pages is unchanged.
Array kv_append(const Array& x, const Array& slots, const Array& pages);

}  // namespace tessera::reference
