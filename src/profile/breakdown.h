// Where the time of a phase went, and how much of it could be saved: a pure function of a trace.
//
//   wall  |-- op --|  gap  |---- op ----|-- op --|  gap  |
//
// The time that no op accounts for is a row of its own, "gaps": the host's work between ops, and on
// a GPU the time between two kernels. Shares are fractions of the wall time, and add up to 1.
//
// Two gains of the whole follow from Amdahl's law: `max_gain`, if this row ran at its floor, and
// `free_gain`, if it took no time at all. 0.15 means: 15% more tokens per second.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/architectures/registry.h"
#include "profile/ceilings.h"
#include "tessera/trace.h"

namespace tessera::profile {

struct BreakdownRow {
  std::string op, kernel;
  std::int64_t calls = 0;
  double ms = 0;
  double share = 0;  // of the wall time
  std::int64_t bytes = 0, flops = 0;
  double floor_ms = 0;
  double max_gain = 0, free_gain = 0;
  bool worth_it = false;
  std::string advice;  // "worth optimising: ..." or "leave it: ..."
};

struct Breakdown {
  double wall_ms = 0;
  std::vector<BreakdownRow> rows;  // the longest first, then gaps, then what was never called
};

inline constexpr const char* kGaps = "gaps";

// Entries of the same op and kernel become one row: their floors are added, call by call. An op
// that the architecture promises for this phase and that no entry names becomes a row with no
// calls. A kernel that is never called passes every test.
Breakdown break_down(std::span<const TraceEntry> entries, double wall_seconds,
                     const Ceilings& ceilings, std::span<const model::StepCalls> promised = {});

// What the whole run gains if a part of `seconds` out of `wall` takes only `after`.
double gain_of(double wall, double seconds, double after);

// The rule: a row is worth work if it takes at least this share of the time, or if the whole could
// gain at least this much.
inline constexpr double kWorthShare = 0.10, kWorthGain = 0.15;

}  // namespace tessera::profile
