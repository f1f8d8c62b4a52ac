#include "profile/advice.h"

#include <fmt/format.h>

namespace tessera::profile {
namespace {

// Closer to its floor than this, a kernel can gain only by doing less work.
constexpr double kAtFloor = 0.80;
// A call that takes less than this spends most of its time on starting.
constexpr double kShortCallMs = 0.005;

double percent(double fraction) { return 100 * fraction; }

// What bounds the row: the longer of its two floors.
bool is_bound_by_memory(const BreakdownRow& row, const Ceilings& ceilings) {
  const double rate = ceilings.rate_for(row.kernel);
  if (rate <= 0 || ceilings.read_bandwidth <= 0) return true;
  return static_cast<double>(row.bytes) / ceilings.read_bandwidth >=
         static_cast<double>(row.flops) / rate;
}

std::string reason_to_work(const BreakdownRow& row, const Ceilings& ceilings) {
  if (row.op == kGaps) {
    return fmt::format("{:.0f}% of the time is between ops: fewer calls, or a captured step",
                       percent(row.share));
  }
  const char* bound = is_bound_by_memory(row, ceilings) ? "memory" : "arithmetic";
  if (row.floor_ms >= kAtFloor * row.ms) {
    return fmt::format(
        "{:.0f}% of the time, but at its floor ({}): only less work helps, a smaller format or a "
        "larger batch",
        percent(row.share), bound);
  }
  const double each = row.calls > 0 ? row.ms / static_cast<double>(row.calls) : 0;
  if (each > 0 && each < kShortCallMs) {
    return fmt::format(
        "{:.0f}% of the time in calls of {:.1f} us, most of which is launch overhead: merge them "
        "with their neighbours; at its floor, the whole run would gain {:.0f}%",
        percent(row.share), 1e3 * each, percent(row.max_gain));
  }
  return fmt::format(
      "{:.0f}% of the time at {:.0f}% of its floor's speed ({}); at its floor, the whole run would "
      "gain {:.0f}%",
      percent(row.share), row.ms > 0 ? percent(row.floor_ms / row.ms) : 0, bound,
      percent(row.max_gain));
}

}  // namespace

std::string advice_for(const BreakdownRow& row, const Ceilings& ceilings) {
  if (row.worth_it) return "worth optimising: " + reason_to_work(row, ceilings);
  return fmt::format("leave it: {:.1f}% of the time; without it, the whole run would gain {:.1f}%",
                     percent(row.share), percent(row.free_gain));
}

std::string advice_never(const model::StepCalls& op) {
  return fmt::format(
      "never called: the model's plan has {} calls of it, so another op did its work", op.calls);
}

}  // namespace tessera::profile
