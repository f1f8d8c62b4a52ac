// The largest elements of each row on a GPU. src/ops/select.cc has checked the arguments.
#pragma once

#include <cstdint>

#include "tessera/select.h"

namespace tessera::cuda {

void argmax(Context& ctx, const ArgmaxArgs& args);
void top_k(Context& ctx, const TopKArgs& args);
// The largest of row rows[i] (i32) of x, for each i; of row 0 if there is no such row.
void top_of_picked(Context& ctx, const char* op, const Tensor& x, const Tensor& rows,
                   const Tensor& values, const Tensor& indices);

// The most workspace that they take, for x and for fewer rows.
std::int64_t select_scratch_bytes(Context& ctx, const Tensor& x, std::int64_t k);
std::int64_t select_scratch_bytes(Context& ctx, std::int64_t rows, std::int64_t width,
                                  std::int64_t k);

}  // namespace tessera::cuda
