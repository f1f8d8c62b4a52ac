// tessera.Tensor: memory of our own, for outputs whose inputs come from no library that we can ask
// for memory, and for packed weights.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <span>

#include "tessera/buffer.h"

namespace tessera::python {

struct OwnedTensor {
  std::shared_ptr<const Buffer> buffer;
  Tensor view;
};

// Null if the object is another thing.
const OwnedTensor* try_owned_tensor(nanobind::handle object);
nanobind::object new_owned_tensor(DType dtype, std::span<const std::int64_t> shape, Device device);

}  // namespace tessera::python
