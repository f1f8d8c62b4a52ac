// The largest elements of each row on a GPU. src/ops/select.cc has checked the arguments.
#pragma once

#include <cstdint>

#include "tessera/select.h"

namespace tessera::cuda {

void argmax(Context& ctx, const ArgmaxArgs& args);
void top_k(Context& ctx, const TopKArgs& args);

// What they take of the workspace at most, for x and for fewer rows.
std::int64_t select_scratch_bytes(Context& ctx, const Tensor& x, std::int64_t k);

}  // namespace tessera::cuda
