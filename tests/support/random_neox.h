// GPT-NeoX models of random weights, of sizes that one kernel can decode (cuda.persistent).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "model/architectures/config.h"
#include "model/checkpoint/random_weights.h"
#include "tessera/context.h"
#include "tessera/model.h"
#include "tessera/quant.h"

namespace tessera::test {

// One block of an emulated GPU has room for these sizes.
struct NeoxShape {
  std::int64_t hidden = 256, heads = 4, inner = 512, layers = 2;
};

// In f16; without a format, the weights are dense.
inline std::unique_ptr<Model> random_neox(Context& ctx, std::optional<Format> format,
                                          bool fuses = true, const NeoxShape& shape = {}) {
  const model::Json json = {
      {"model_type", "gpt_neox"},           {"architectures", {"GPTNeoXForCausalLM"}},
      {"hidden_size", shape.hidden},        {"num_hidden_layers", shape.layers},
      {"num_attention_heads", shape.heads}, {"intermediate_size", shape.inner},
      {"max_position_embeddings", 4096},    {"vocab_size", 160}};
  std::optional<QuantizeOptions> pack;
  if (format) pack = QuantizeOptions{.format = *format};
  return model::make_random_model(ctx, model::model_config_of(json, "config.json"),
                                  {.dtype = DType::f16, .pack = pack, .fuse_layers = fuses});
}

}  // namespace tessera::test
