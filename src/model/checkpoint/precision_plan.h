// Which layers of a model stay dense when the rest is packed: those that lose most for their size,
// as many as fit into a size budget. The result is a PrecisionPlan (tessera/modules.h) and the
// table of costs behind it. engine/sensitivity.h measures what a layer loses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/modules.h"
#include "tessera/weight.h"

namespace tessera::model {

struct LayerCost {
  std::string layer;
  double divergence = 0;  // nats per token, with this layer alone packed
  std::int64_t dense_bytes = 0, packed_bytes = 0;
  bool dense = false;  // the decision
};

struct BudgetPlan {
  PrecisionPlan plan;
  std::vector<LayerCost> layers;  // as given, with the decisions
  std::int64_t bytes = 0;         // of the checkpoint, under the plan
};

// Keeps layers dense in the order of divergence per extra byte, as long as the checkpoint (these
// layers and `other_bytes`) stays within `budget` bytes; a layer that does not fit is skipped.
// Refuses a budget that is too small even with everything packed, and names the smallest possible.
BudgetPlan plan_for_budget(std::vector<LayerCost> layers, Format format, std::int64_t budget,
                           std::int64_t other_bytes);

// "60%" of `whole`, "300MB" (10^6), "1.5GiB", "4096B". Throws, with what is accepted, for anything
// else, such as a number without a unit.
std::int64_t parse_budget(std::string_view text, std::int64_t whole);
// A budget for parse_budget() that has room for `bytes`: "31.250MB", rounded up.
std::string budget_text(std::int64_t bytes);

}  // namespace tessera::model
