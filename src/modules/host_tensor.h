// Fills device memory with numbers made on the host.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera {

// Writes `values`, converted to out's dtype, into the contiguous tensor `out` on the Context's
// device.
void fill(Context& ctx, const Tensor& out, std::span<const float> values);

// Fills `out` with Normal(0, scale) numbers that depend only on the seed and the index.
void fill_normal(Context& ctx, const Tensor& out, std::uint64_t seed, float scale);

}  // namespace tessera
