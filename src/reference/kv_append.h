#pragma once

#include "reference/array.h"
#include "tessera/dtype.h"

namespace tessera::reference {

// Writes x [tokens, heads, dim] to the slots of pages [pages, page_size, heads, dim]. The rest of
// the pages is unchanged.
Array kv_append(const Array& x, const Array& slots, const Array& pages);

// Keys or values of 8 bits: the values of codes, [pages, page_size, heads, dim], and scales
// [pages, heads, page_size]. Or the same of a batch.
struct Scaled {
  Array codes, scales;
};
// The same as f8e4m3 or i8: the scale of a head is rounded to f32, and so are the ratios to it,
// which are then rounded to codes.
Scaled kv_append(const Array& x, const Array& slots, const Scaled& pages, DType stored);
// codes * scales, like codes.
Array decoded(const Scaled& stored);

}  // namespace tessera::reference
