// From a folder to a Model: config, checkpoint, architecture.
#include <algorithm>
#include <memory>
#include <utility>

#include "core/fail.h"
#include "model/architectures.h"
#include "model/checkpoint.h"
#include "model/checkpoint_weights.h"
#include "tessera/model.h"

namespace tessera {

namespace model {

DType model_dtype(const Context& ctx, const ModelConfig& config, std::optional<DType> asked) {
  const DType dtype = asked.value_or(ctx.device().is_cpu() ? DType::f32 : config.stored_dtype);
  if (is_float(dtype)) return dtype;
  fail(ErrorCode::invalid_argument, "a model computes in f32, f16 or bf16, got {}", name(dtype));
}

std::unique_ptr<Model> make_model(const ModelConfig& config, DType dtype, WeightSource& weights) {
  return config.architecture == Architecture::gpt_neox ? make_gpt_neox(config, dtype, weights)
                                                       : make_llama(config, dtype, weights);
}

}  // namespace model

std::unique_ptr<Model> load_model(Context& ctx, const std::filesystem::path& directory,
                                  const LoadOptions& options) {
  std::shared_ptr<const model::Checkpoint> checkpoint = model::Checkpoint::open(directory);
  const ModelConfig config = read_model_config(directory);
  const DType dtype = model::model_dtype(ctx, config, options.dtype);
  model::CheckpointWeights weights(ctx, std::move(checkpoint), dtype, options);
  return model::make_model(config, dtype, weights);
}

KvCache Model::make_cache(Context& ctx, const CachePolicy& policy, std::int64_t max_tokens,
                          std::int64_t max_step) const {
  if (policy.kind == CachePolicy::Kind::sinks) {
    const std::int64_t kept = policy.n_sink + policy.window;
    for (const std::int64_t window : config_.windows) {
      if (window == 0 || window >= kept) continue;
      fail(ErrorCode::unsupported,
           "{} keeps {} tokens, but layers of this model see only the last {}: choose sinks and a "
           "window of {} tokens together at most",
           to_string(policy), kept, window, window);
    }
  }
  return KvCache(ctx, {.layers = config_.layers,
                       .kv_heads = config_.kv_heads,
                       .head_dim = config_.head_dim,
                       .dtype = dtype_,
                       .policy = policy,
                       .max_tokens = max_tokens,
                       .max_step = max_step});
}

}  // namespace tessera
