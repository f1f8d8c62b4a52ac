// How much a model loses when one of its layers is packed: measured, not guessed from the weights.
// The model runs over a text with that layer alone packed, and its predictions are compared with
// the dense model's. The measure is the mean Kullback-Leibler divergence per token, in nats: the
// log likelihood that the packed layer costs on text that the dense model would write.
//
// It assumes that the text resembles what the model will be used for. A plan that adds layers up
// also assumes that their divergences add up; a plan as a whole can be measured the same way.
//
// It costs one pass over the text for each layer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/context.h"
#include "tessera/model.h"

namespace tessera {

class DivergenceProbe {
 public:
  // Runs the dense model over the ids; there must be at least one.
  DivergenceProbe(Context& ctx, const Model& dense, std::span<const std::int32_t> ids);

  // Mean KL(dense || other) per token, in nats.
  double divergence(Context& ctx, const Model& other) const;

 private:
  std::vector<std::int32_t> ids_;
  std::vector<float> logprobs_;  // [tokens, vocab], of the dense model
};

// The text for the probe if the user gives none. The model itself writes it, drawn with a fixed
// seed. It is the same on any number of threads.
std::vector<std::int32_t> self_written_text(Context& ctx, const Model& model, std::int64_t tokens);

}  // namespace tessera
