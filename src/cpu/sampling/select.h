// The largest elements of each row on the CPU. Arguments have been checked by src/ops/select.cc.
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
// What top_k() takes of the workspace, for any number of rows. argmax() takes nothing.
std::int64_t top_k_scratch_bytes(Context& ctx, std::int64_t k);

}  // namespace tessera::cpu
