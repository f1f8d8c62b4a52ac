// How much each layer of a model suffers from being packed: measured, not guessed from its weights.
// The model is run over a text with this layer alone packed, and its predictions are compared with
// the dense model's. The measure is the mean Kullback-Leibler divergence per token, in nats: the
// likelihood that the packed layer costs on text that the dense model would write.
//
// What it assumes: that the text is like what the model will be used for; and, where a plan adds
// layers up, that their divergences add up. A plan as a whole can be measured the same way.
//
// What it costs: one pass over the text for each layer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/context.h"
#include "tessera/model.h"

namespace tessera {

class DivergenceProbe {
 public:
  // Runs the dense model over the ids, at least one of them.
  DivergenceProbe(Context& ctx, const Model& dense, std::span<const std::int32_t> ids);

  // Mean KL(dense || other) per token, in nats.
  double divergence(Context& ctx, const Model& other) const;

 private:
  std::vector<std::int32_t> ids_;
  std::vector<float> logprobs_;  // [tokens, vocab], of the dense model
};

// Text for the probe where none is given: what the model itself writes, from its first token on,
// drawn with a fixed seed; the same on any number of threads.
std::vector<std::int32_t> self_written_text(Context& ctx, const Model& model, std::int64_t tokens);

}  // namespace tessera
