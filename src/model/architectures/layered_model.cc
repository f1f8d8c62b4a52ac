#include "model/architectures/layered_model.h"

#include <algorithm>
#include <functional>

#include "core/fail.h"
#include "core/workspace.h"
#include "model/architectures/config_parts.h"
#include "model/architectures/context_pass.h"
#include "model/stream_memory.h"

namespace tessera::model {

namespace {

// Each process keeps its pages of a pool.
class SpreadPages final : public PoolWatcher {
 public:
  explicit SpreadPages(const PageShare& share) : share_(share) {}
  void copied(std::int32_t, std::int32_t) override {
    fail(ErrorCode::unsupported,
         "only rank 0 can copy pages of a cache that is spread over processes");
  }
  PageShare share() const override { return share_; }

 private:
  PageShare share_;
};

}  // namespace

std::shared_ptr<PoolWatcher> LayeredModel::watch_pool() const {
  if (context_ranks_ == nullptr) return nullptr;
  return std::make_shared<SpreadPages>(
      PageShare{.rank = context_ranks_->rank(), .size = context_ranks_->size()});
}

void LayeredModel::forward(Context& ctx, const ForwardArgs& args) const {
  const auto run = [&](const ForwardArgs& pass, auto&& runs) {
    runs(ctx, *this, pass,
         PassParts{
             .embedding = embedding_,
             .head = head_,
             .shard = shard_,
             .run_layer = [&](std::int64_t layer, const Tensor& x, const FinishedRows& rows,
                              const Tensor& out) { run_layer(ctx, pass, layer, x, rows, out); },
             .run_all_layers = [&](const Tensor& x) { return run_all_layers(ctx, pass, x); },
             .all_layers_embed = fuses_embedding(),
             .final_norm = [&](const Tensor& x,
                               const Tensor& out) { run_final_norm(ctx, *pass.step, x, out); }});
  };
  if (!is_spread()) return run(args, run_pass);
  const ContextPass context(ctx, *context_ranks_, args, config_.windows);
  ForwardArgs local = args;
  local.step = &context.step();
  local.context = &context;
  run(local, context.splits_rows() ? run_split_pass : run_pass);
}

bool LayeredModel::may_decode_at_once(const WeightSource& weights) const {
  const std::vector<std::int64_t>& windows = config_.windows;
  const auto differ = std::adjacent_find(windows.begin(), windows.end(), std::not_equal_to<>());
  return !shard_.is_part() && weights.fuses_layers() && differ == windows.end();
}

std::optional<DecodeLayersArgs> LayeredModel::all_layers(const ForwardArgs& args,
                                                         const Tensor& x) const {
  if (decode_layers_.empty()) return std::nullopt;
  const CacheStep& step = *args.step;
  const AttentionGroup& group = step.groups.front();
  TokenEmbedding embedding;
  if (fuses_embedding()) {
    embedding = {.ids = step.ids, .table = embedding_, .drawn = args.drawn};
  }
  return DecodeLayersArgs{.kind = decode_kind_,
                          .layers = decode_layers_,
                          .x = x,
                          .embedding = embedding,
                          .final_norm = decode_norm_,
                          .eps = static_cast<float>(config_.norm_eps),
                          .activation = config_.activation,
                          .heads = config_.heads,
                          .kv_heads = config_.kv_heads,
                          .dim = config_.head_dim,
                          .rope = rope_,
                          .positions = step.positions,
                          .slots = step.slots,
                          .keys = key_pages(*step.pool),
                          .values = value_pages(*step.pool),
                          .pages = group.pages,
                          .mask = narrowed(group.mask, config_.windows.front())};
}

bool LayeredModel::run_all_layers(Context& ctx, const ForwardArgs& args, const Tensor& x) const {
  const std::optional<DecodeLayersArgs> call = all_layers(args, x);
  return call && decode_layers(ctx, *call);
}

bool LayeredModel::fuses_layers(Context& ctx, const CacheStep& step) const {
  if (is_spread()) return false;
  const Workspace::Count only_addresses(ctx.workspace());
  Workspace::Frame frame(ctx.workspace());
  const ForwardArgs args{
      .step = &step,
      .logits = frame.take(DType::f32, {std::max<std::int64_t>(step.logits, 1), config_.vocab})};
  if (!is_single_token(ctx, args)) return false;
  const std::optional<DecodeLayersArgs> call =
      all_layers(args, frame.take(dtype_, {1, config_.hidden}));
  return call && has_decode_layers_kernel(ctx, *call);
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
