// Ids of tokens that a device draws and the host has not read yet: -1 - k stands for drawn[k].
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "tessera/tensor.h"

namespace tessera {

struct DrawnIds {
  const std::int32_t* ids = nullptr;
  std::int64_t count = 0;

  DrawnIds() = default;
  // There are none if the tensor is not defined.
  explicit DrawnIds(const Tensor& drawn)
      : ids(drawn.defined() ? drawn.ptr<const std::int32_t>() : nullptr),
        count(drawn.defined() ? drawn.numel() : 0) {}

  // The id itself. Negative if it stands for nothing.
  TESSERA_HOST_DEVICE std::int64_t id(std::int64_t given) const {
    if (given >= 0 || given < -count) return given;
    return ids[-1 - given];
  }
};

}  // namespace tessera
