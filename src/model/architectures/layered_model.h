// What all architectures have in common: an embedding, layers over a residual stream, a final norm
// and a head. An architecture adds its tensors, its layer and its norm.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "model/architectures/forward.h"
#include "model/architectures/shard.h"
#include "model/checkpoint/weight_source.h"
#include "tessera/decode_layers.h"
#include "tessera/model.h"

namespace tessera::model {

class LayeredModel : public Model {
 public:
  void forward(Context& ctx, const ForwardArgs& args) const final;
  std::int64_t workspace_bytes(Context& ctx, const KvCacheOptions& cache,
                               std::int64_t logit_rows) const final;
  std::int64_t workspace_bytes(Context& ctx, const PagePoolOptions& pool,
                               const CacheBatchLimits& limits, std::int64_t logit_rows) const final;
  void check_files() const final { storage_.check_files(); }
  bool fuses_layers(Context& ctx, const CacheStep& step) const final;
  // The kernel of all layers takes no other tables.
  bool fuses_embedding() const final {
    return embedding_.format == Format::dense && embedding_.data.dtype == dtype_;
  }
  std::shared_ptr<PoolWatcher> watch_pool() const final;

 protected:
  // config() becomes that of the part which this process holds.
  LayeredModel(const ModelConfig& config, DType dtype, const WeightSource& weights)
      : shard_(shard_of(config, weights.ranks())), context_ranks_(weights.context_ranks()) {
    config_ = config_of(config, shard_);
    dtype_ = dtype;
  }
  // Reads the frequencies of the rotation, and takes over the memory of the weights. Call it when
  // all tensors have been read.
  void finish_reading(WeightSource& weights);
  // Whether the layers may be described to decode_layers(): this process has all of each, all see
  // the same keys, and nobody asked for single ops.
  bool may_decode_at_once(const WeightSource& weights) const;

  // Replaces `out`, the finished rows of x [tokens, hidden], by the layer's output.
  virtual void run_layer(Context& ctx, const ForwardArgs& args, std::int64_t index, const Tensor& x,
                         const FinishedRows& rows, const Tensor& out) const = 0;
  virtual void run_final_norm(Context& ctx, const CacheStep& step, const Tensor& x,
                              const Tensor& out) const = 0;

  Shard shard_;
  Communicator* context_ranks_;  // over which the cache is spread, or null
  Weight embedding_;             // [vocab, hidden], or the shard's rows of it
  Weight head_;                  // the same
  Rope rope_;
  // The layers and the final norm as decode_layers() takes them; no layers: they always run op by
  // op.
  std::vector<DecodeLayer> decode_layers_;
  DecodeLayer::Norm decode_norm_;
  DecodeLayerKind decode_kind_ = DecodeLayerKind::parallel;

 private:
  bool is_spread() const { return context_ranks_ != nullptr && context_ranks_->size() > 1; }
  // The call of decode_layers() that replaces x [1, hidden] by what the head reads. None: the model
  // runs layer by layer.
  std::optional<DecodeLayersArgs> all_layers(const ForwardArgs& args, const Tensor& x) const;
  // Makes that call, if there is one. False: it did nothing.
  bool run_all_layers(Context& ctx, const ForwardArgs& args, const Tensor& x) const;

  WeightStorage storage_;
};

}  // namespace tessera::model
