// The penalties on a token that has been seen. The Sampler and adjust_logits() share it on every
// device: files that include this are compiled without contraction into fused multiply-adds.
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace tessera {

// A penalty is a difference of logits, so it is in f32 like them. `generated`: how often the token
// was generated.
TESSERA_HOST_DEVICE inline float penalised_logit(float logit, double repetition, double presence,
                                                 double frequency, std::int32_t generated) {
  const double value = static_cast<double>(logit);
  const float repeated = static_cast<float>(logit > 0 ? value / repetition : value * repetition);
  if (generated <= 0) return repeated;
  return repeated - static_cast<float>(presence + frequency * generated);
}

}  // namespace tessera
