// Makes a precision plan by measurement. It measures how much each layer loses on a text when it is
// packed. Then it chooses the layers that stay dense within a size budget.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/precision_plan.h"
#include "tessera/context.h"
#include "tessera/model.h"
#include "tessera/modules.h"
#include "tessera/quant.h"

namespace tessera {

struct AutoPlanArgs {
  QuantizeOptions options{};
  std::int64_t budget = 0;             // for all tensors of the new checkpoint, in bytes
  std::vector<PrecisionRule> fixed{};  // layers that stay dense and are not measured
  bool embedding = false;  // the token embedding, with the head tied to it, may be packed too
  // The ids to measure on, given the dense model: a text, or self_written_text().
  std::function<std::vector<std::int32_t>(const Model& dense)> text{};
  std::function<void(std::int64_t done, std::int64_t total)> progress{};
};

struct AutoPlan {
  model::BudgetPlan decided;
  std::int64_t tokens = 0;  // length of the text that was used for measuring
  // Measured on the whole model, because divergences of single layers add up only roughly.
  double divergence_all_packed = 0, divergence = 0;
};

// Bytes of the new checkpoint if every layer that may be packed is. No smaller budget can be met.
std::int64_t smallest_budget(const model::Checkpoint& checkpoint, const AutoPlanArgs& args);

// Refuses a budget below smallest_budget() before anything is measured.
AutoPlan plan_automatically(Context& ctx, const model::Checkpoint& checkpoint,
                            const AutoPlanArgs& args);

}  // namespace tessera
