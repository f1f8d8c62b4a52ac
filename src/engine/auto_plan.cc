#include "engine/auto_plan.h"

#include <algorithm>
#include <memory>

#include "engine/sensitivity.h"
#include "model/checkpoint/quantize_checkpoint.h"

namespace tessera {
namespace {

using model::LayerCost;
using model::PackableLayer;

// The layers that are to be decided on, and what everything else will take.
struct Question {
  std::vector<LayerCost> layers;  // without their divergence
  std::int64_t other_bytes = 0;
};

Question open_question(const model::Checkpoint& checkpoint, const AutoPlanArgs& args) {
  Question question;
  for (const model::StoredTensor& tensor : checkpoint.tensors()) {
    question.other_bytes += static_cast<std::int64_t>(tensor.data.size());
  }
  const PrecisionPlan fixed{.rules = args.fixed, .otherwise = args.options.format};
  for (const PackableLayer& layer : packable_layers(checkpoint)) {
    if (fixed.format_of(layer.name) == Format::dense || (layer.embedding && !args.embedding)) {
      continue;
    }
    const std::int64_t packed = stored_bytes(layer, args.options);
    if (layer.embedding) {
      question.other_bytes += packed - layer.dense_bytes;
    } else {
      question.other_bytes -= layer.dense_bytes;
      question.layers.push_back(
          {.layer = layer.name, .dense_bytes = layer.dense_bytes, .packed_bytes = packed});
    }
  }
  return question;
}

// With the layers packed that `packed` accepts.
template <typename Packed>
double divergence_with(Context& ctx, const model::Checkpoint& checkpoint, const Model& dense,
                       const DivergenceProbe& probe, const QuantizeOptions& options,
                       Packed&& packed) {
  LoadOptions load{.dtype = DType::f32, .pack = options};
  for (const LayerInfo& layer : dense.linear_layers()) {
    if (!packed(layer.name)) load.keep_dense.push_back(layer.name);
  }
  return probe.divergence(ctx, *load_model(ctx, checkpoint.directory(), load));
}

}  // namespace

AutoPlan plan_automatically(Context& ctx, const model::Checkpoint& checkpoint,
                            const AutoPlanArgs& args) {
  Question question = open_question(checkpoint, args);
  // Refuses a budget that cannot be met before anything is measured.
  plan_for_budget(question.layers, args.options.format, args.budget, question.other_bytes);

  const auto dense = load_model(ctx, checkpoint.directory(), {.dtype = DType::f32});
  const std::vector<std::int32_t> ids = args.text(*dense);
  const DivergenceProbe probe(ctx, *dense, ids);
  const auto total = static_cast<std::int64_t>(question.layers.size());
  std::int64_t done = 0;
  for (LayerCost& layer : question.layers) {
    layer.divergence =
        divergence_with(ctx, checkpoint, *dense, probe, args.options,
                        [&](const std::string& name) { return name == layer.layer; });
    if (args.progress) args.progress(++done, total);
  }
  AutoPlan plan{.decided = plan_for_budget(question.layers, args.options.format, args.budget,
                                           question.other_bytes),
                .tokens = static_cast<std::int64_t>(ids.size())};
  const std::vector<LayerCost>& layers = plan.decided.layers;
  const auto find = [&](const std::string& name) {
    return std::find_if(layers.begin(), layers.end(),
                        [&](const LayerCost& layer) { return layer.layer == name; });
  };
  plan.divergence_all_packed =
      divergence_with(ctx, checkpoint, *dense, probe, args.options,
                      [&](const std::string& name) { return find(name) != layers.end(); });
  plan.divergence =
      divergence_with(ctx, checkpoint, *dense, probe, args.options, [&](const std::string& name) {
        const auto layer = find(name);
        return layer != layers.end() && !layer->dense;
      });
  return plan;
}

}  // namespace tessera
