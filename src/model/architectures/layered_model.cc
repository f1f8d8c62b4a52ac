#include "model/architectures/layered_model.h"

#include "model/architectures/config_parts.h"
#include "model/stream_memory.h"

namespace tessera::model {

void LayeredModel::forward(Context& ctx, const ForwardArgs& args) const {
  run_pass(ctx, *this, args,
           {.embedding = embedding_,
            .head = head_,
            .shard = shard_,
            .run_layer = [&](std::int64_t layer, const Tensor& x, const FinishedRows& rows,
                             const Tensor& out) { run_layer(ctx, args, layer, x, rows, out); },
            .final_norm = [&](const Tensor& x,
                              const Tensor& out) { run_final_norm(ctx, *args.step, x, out); }});
}

std::int64_t LayeredModel::workspace_bytes(Context& ctx, const KvCacheOptions& cache,
                                           std::int64_t logit_rows) const {
  return count_workspace(ctx, *this, cache, logit_rows);
}

std::int64_t LayeredModel::workspace_bytes(Context& ctx, const PagePoolOptions& pool,
                                           const CacheBatchLimits& limits,
                                           std::int64_t logit_rows) const {
  return count_workspace(ctx, *this, pool, limits, logit_rows);
}

void LayeredModel::finish_reading(WeightSource& weights) {
  rope_ = {.inv_freq = weights.constants(rope_frequencies(config_.rope))};
  weights.finish();
  linear_layers_ = weights.take_layers();
  weight_bytes_ = weights.bytes();
  notes_ = weights.take_notes();
  storage_ = weights.take_storage();
}

}  // namespace tessera::model
