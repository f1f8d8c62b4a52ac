#include "profile/breakdown.h"

#include <algorithm>

#include "profile/advice.h"

namespace tessera::profile {
namespace {

BreakdownRow& row_of(std::vector<BreakdownRow>& rows, const TraceEntry& entry) {
  for (BreakdownRow& row : rows) {
    if (row.op == entry.op && row.kernel == entry.kernel) return row;
  }
  rows.push_back({.op = entry.op, .kernel = entry.kernel, .advice = {}});
  return rows.back();
}

void add_promised(std::vector<BreakdownRow>& rows, std::span<const model::StepCalls> promised) {
  for (const model::StepCalls& op : promised) {
    const bool seen = std::any_of(rows.begin(), rows.end(),
                                  [&](const BreakdownRow& row) { return row.op == op.op; });
    if (seen || op.calls == 0) continue;
    rows.push_back({.op = op.op, .kernel = "none", .worth_it = true, .advice = advice_never(op)});
  }
}

}  // namespace

double gain_of(double wall, double seconds, double after) {
  const double rest = wall - std::max(seconds - after, 0.0);
  return rest > 0 ? wall / rest - 1 : 0;
}

Breakdown break_down(std::span<const TraceEntry> entries, double wall_seconds,
                     const Ceilings& ceilings, std::span<const model::StepCalls> promised) {
  Breakdown result{.wall_ms = 1e3 * wall_seconds, .rows = {}};
  double in_ops = 0;
  for (const TraceEntry& entry : entries) {
    BreakdownRow& row = row_of(result.rows, entry);
    row.calls += entry.calls;
    row.ms += 1e3 * entry.seconds;
    row.bytes += entry.bytes;
    row.flops += entry.flops;
    row.floor_ms += 1e3 * ceilings.floor_seconds(entry.bytes, entry.flops, entry.kernel);
    in_ops += entry.seconds;
  }
  std::stable_sort(result.rows.begin(), result.rows.end(),
                   [](const BreakdownRow& a, const BreakdownRow& b) { return a.ms > b.ms; });
  result.rows.push_back({.op = kGaps,
                         .kernel = "none",
                         .ms = std::max(result.wall_ms - 1e3 * in_ops, 0.0),
                         .advice = {}});
  for (BreakdownRow& row : result.rows) {
    if (result.wall_ms <= 0) break;
    row.share = row.ms / result.wall_ms;
    row.max_gain = gain_of(result.wall_ms, row.ms, row.floor_ms);
    row.free_gain = gain_of(result.wall_ms, row.ms, 0);
    row.worth_it = row.share >= kWorthShare || row.max_gain >= kWorthGain;
    row.advice = advice_for(row, ceilings);
  }
  add_promised(result.rows, promised);
  return result;
}

}  // namespace tessera::profile
