// One sentence on a row of a breakdown: worth optimising or not, and why.
#pragma once

#include <string>

#include "profile/breakdown.h"

namespace tessera::profile {

// Needs share, gains and worth_it of the row.
std::string advice_for(const BreakdownRow& row, const Ceilings& ceilings);
// For an op that the plan promises and the trace does not have.
std::string advice_never(const model::StepCalls& op);

}  // namespace tessera::profile
