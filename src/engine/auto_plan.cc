#include "engine/auto_plan.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/sensitivity.h"
#include "model/checkpoint/quantize_checkpoint.h"

namespace tessera {
namespace {

using model::LayerCost;
using model::PackableLayer;

// The layers to decide on, and the size of everything else.
struct Question {
  std::vector<LayerCost> layers;  // without their divergence, which is not measured yet
  std::int64_t other_bytes = 0;
  std::string embedding;  // its name, if it is one of the layers
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
    if (layer.embedding) question.embedding = layer.name;
    question.other_bytes -= layer.dense_bytes;
    question.layers.push_back({.layer = layer.name,
                               .dense_bytes = layer.dense_bytes,
                               .packed_bytes = stored_bytes(layer, args.options)});
  }
  return question;
}

// Measures the model with some of its layers packed.
class Measure {
 public:
  Measure(Context& ctx, const model::Checkpoint& checkpoint, const AutoPlanArgs& args,
          const Question& question)
      : ctx_(ctx),
        directory_(checkpoint.directory()),
        options_(args.options),
        embedding_(question.embedding),
        dense_(load_model(ctx, directory_, {.dtype = DType::f32})),
        ids_(args.text(*dense_)),
        probe_(ctx, *dense_, ids_) {}

  // Divergence of the model when the layers whose names `packed` accepts are packed.
  template <typename Packed>
  double divergence(Packed&& packed) const {
    LoadOptions load{.dtype = DType::f32, .pack = options_};
    load.pack_embedding = !embedding_.empty() && packed(embedding_);
    for (const LayerInfo& layer : dense_->linear_layers()) {
      if (!packed(layer.name)) load.keep_dense.push_back(layer.name);
    }
    return probe_.divergence(ctx_, *load_model(ctx_, directory_, load));
  }
  std::int64_t tokens() const { return static_cast<std::int64_t>(ids_.size()); }

 private:
  Context& ctx_;
  std::filesystem::path directory_;
  QuantizeOptions options_;
  std::string embedding_;
  std::unique_ptr<Model> dense_;
  std::vector<std::int32_t> ids_;
  DivergenceProbe probe_;
};

}  // namespace

std::int64_t smallest_budget(const model::Checkpoint& checkpoint, const AutoPlanArgs& args) {
  const Question question = open_question(checkpoint, args);
  std::int64_t bytes = question.other_bytes;
  for (const LayerCost& layer : question.layers) bytes += layer.packed_bytes;
  return bytes;
}

AutoPlan plan_automatically(Context& ctx, const model::Checkpoint& checkpoint,
                            const AutoPlanArgs& args) {
  Question question = open_question(checkpoint, args);
  const auto decide = [&] {
    return plan_for_budget(question.layers, args.options.format, args.budget, question.other_bytes);
  };
  decide();  // refuses an impossible budget before anything is measured

  const Measure measure(ctx, checkpoint, args, question);
  const auto total = static_cast<std::int64_t>(question.layers.size());
  std::int64_t done = 0;
  for (LayerCost& layer : question.layers) {
    layer.divergence =
        measure.divergence([&](const std::string& name) { return name == layer.layer; });
    if (args.progress) args.progress(++done, total);
  }
  AutoPlan plan{.decided = decide(), .tokens = measure.tokens()};
  const std::vector<LayerCost>& layers = plan.decided.layers;
  const auto find = [&](const std::string& name) {
    return std::find_if(layers.begin(), layers.end(),
                        [&](const LayerCost& layer) { return layer.layer == name; });
  };
  plan.divergence_all_packed =
      measure.divergence([&](const std::string& name) { return find(name) != layers.end(); });
  plan.divergence = measure.divergence([&](const std::string& name) {
    const auto layer = find(name);
    return layer != layers.end() && !layer->dense;
  });
  return plan;
}

}  // namespace tessera
