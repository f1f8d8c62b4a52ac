// Divides the rows of a tensor among the threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/checked.h"
#include "core/thread_pool.h"

namespace tessera::cpu {

// Calls fn(row, worker) once for each row in [0, rows). Rows are handed out in chunks of about 16K
// elements. That is a few microseconds of work, well above the cost of handing it out.
template <typename F>
void for_each_row(ThreadPool& pool, std::int64_t rows, std::int64_t elements_per_row, F&& fn) {
  constexpr std::int64_t kChunkElements = 1 << 14;
  const std::int64_t chunk =
      std::max<std::int64_t>(1, kChunkElements / std::max<std::int64_t>(1, elements_per_row));
  pool.parallel_for(ceil_div(rows, chunk), [&](std::int64_t task, int worker) {
    const std::int64_t end = std::min(rows, (task + 1) * chunk);
    for (std::int64_t row = task * chunk; row < end; ++row) fn(row, worker);
  });
}

}  // namespace tessera::cpu
