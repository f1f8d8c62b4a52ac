// From a folder to a Model: config, checkpoint, architecture.
#include <memory>
#include <utility>

#include "core/fail.h"
#include "core/workspace.h"
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
  const std::int64_t workspace_before = ctx.workspace_bytes();
  model::CheckpointWeights weights(ctx, std::move(checkpoint), dtype, options);
  std::unique_ptr<Model> model = model::make_model(config, dtype, weights);
  // Packing a layer can take more than any step of a stream will.
  if (ctx.workspace_bytes() > workspace_before) ctx.workspace().release();
  return model;
}

}  // namespace tessera
