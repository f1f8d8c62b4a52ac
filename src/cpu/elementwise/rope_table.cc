#include "cpu/elementwise/rope_table.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "core/backend_state.h"
#include "core/checked.h"
#include "core/thread_pool.h"
#include "cpu/elementwise/rotary.h"

namespace tessera::cpu {
namespace {

// The rows of one set of frequencies, up to the last position asked for so far.
struct Table {
  std::vector<float> inv_freq;
  std::vector<float> rows;  // [positions, 2, pairs]
};

// It is unlikely that more models with different frequencies take turns in one Context.
constexpr std::size_t kMostTables = 4;

// Tables are kept with the most recently used first.
Table& table_of(std::vector<Table>& tables, const Tensor& inv_freq) {
  const float* begin = inv_freq.ptr<const float>();
  const float* end = begin + inv_freq.shape[0];
  auto found = std::find_if(tables.begin(), tables.end(), [&](const Table& table) {
    return std::equal(begin, end, table.inv_freq.begin(), table.inv_freq.end());
  });
  if (found == tables.end()) {
    if (tables.size() == kMostTables) tables.pop_back();
    found = tables.insert(tables.end(), Table{{begin, end}, {}});
  }
  std::rotate(tables.begin(), found, found + 1);
  return tables.front();
}

// Keeps room for `most` positions, so that a stream that grows from token to token allocates once.
void extend(Context& ctx, Table& table, std::int64_t positions, std::int64_t most) {
  const std::int64_t pairs = std::ssize(table.inv_freq);
  if (pairs == 0) return;
  const std::int64_t begin = std::ssize(table.rows) / (2 * pairs);
  if (begin >= positions) return;
  table.rows.reserve(static_cast<std::size_t>(checked_mul(most, 2 * pairs)));
  table.rows.resize(static_cast<std::size_t>(checked_mul(positions, 2 * pairs)));
  constexpr std::int64_t kChunk = 64;  // positions of a task: a few microseconds
  ctx.pool().parallel_for(ceil_div(positions - begin, kChunk), [&](std::int64_t task, int) {
    const std::int64_t first = begin + task * kChunk;
    for (std::int64_t p = first; p < std::min(positions, first + kChunk); ++p) {
      float* cos = table.rows.data() + 2 * p * pairs;
      rope_cos_sin(p, table.inv_freq.data(), pairs, cos, cos + pairs);
    }
  });
}

}  // namespace

// What the CPU back end keeps in the Context.
struct RopeTables final : BackendState {
  std::vector<Table> tables;
};

const float* rope_table(Context& ctx, const Tensor& inv_freq, std::int64_t positions,
                        std::int64_t most) {
  if (!ctx.backend_state()) ctx.backend_state() = std::make_unique<RopeTables>();
  auto& kept = static_cast<RopeTables&>(*ctx.backend_state());
  Table& table = table_of(kept.tables, inv_freq);
  extend(ctx, table, positions, most);
  return table.rows.data();
}

}  // namespace tessera::cpu
