// The largest elements of each row on the CPU. src/ops/select.cc has checked the arguments.
#pragma once

#include <cstdint>

#include "tessera/select.h"

namespace tessera::cpu {

void argmax(Context& ctx, const ArgmaxArgs& args);
void top_k(Context& ctx, const TopKArgs& args);

// One of the k that a thread has found so far.
struct TopKCandidate {
  float value;
  std::int64_t index;
};
// Workspace that top_k() takes, for any number of rows. argmax() takes none.
std::int64_t top_k_scratch_bytes(Context& ctx, std::int64_t k);

}  // namespace tessera::cpu
