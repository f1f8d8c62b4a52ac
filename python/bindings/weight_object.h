// tessera.Weight: a matrix of weights, dense or packed, and what keeps its memory alive.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

#include "call.h"
#include "tessera/buffer.h"
#include "tessera/weight.h"

namespace tessera::python {

struct WeightObject {
  Weight weight;
  std::shared_ptr<const Buffer> storage;  // packed by us
  nb::object array;  // or an array of somebody else: the matrix, or the bytes of packed parts
  std::vector<std::int64_t> offsets;  // of the parts in these bytes; -1: no such part
};

WeightObject make_weight(PackedWeight packed);
// What the call's op takes: a tessera.Weight, or an array, which is a dense matrix.
Weight weight_argument(Call& call, const char* name, nb::handle object);

}  // namespace tessera::python
