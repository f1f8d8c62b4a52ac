#include "model/architectures/shard.h"

#include <algorithm>

#include "core/checked.h"
#include "core/fail.h"
#include "core/workspace.h"

namespace tessera::model {
namespace {

// The largest power of two that leaves every rank at least one unit. Blocks of packed formats have
// up to 128 weights, so that a part of that many columns cuts none of them.
std::int64_t largest_unit(std::int64_t n, std::int64_t most, int size) {
  std::int64_t unit = most;
  while (unit > 1 && (n % unit != 0 || n / unit < size)) unit /= 2;
  return unit;
}

}  // namespace

void Shard::add_up(Context& ctx, const Tensor& data) const {
  if (!is_part() || ctx.workspace().is_counting()) return;
  ranks->all_reduce(ctx, data);
}

Range part_of(std::int64_t n, std::int64_t unit, int rank, int size) {
  const std::int64_t units = ceil_div(n, unit);
  const auto begin = [&](int r) { return std::min(n, (units * r + size - 1) / size * unit); };
  return {begin(rank), begin(rank + 1)};
}

std::int64_t largest_part(std::int64_t n, std::int64_t unit, int size) {
  return std::min(n, ceil_div(ceil_div(n, unit), size) * unit);
}

std::int64_t vocab_unit(std::int64_t vocab, int size) { return largest_unit(vocab, 16, size); }

Shard shard_of(const ModelConfig& config, Communicator* ranks) {
  Shard shard{.ranks = ranks};
  if (!shard.is_part()) return shard;
  const int rank = ranks->rank(), size = ranks->size();
  const std::int64_t group = config.heads / config.kv_heads;  // heads that share keys and values
  const std::int64_t heads = config.heads / size;
  // Either a rank has whole groups, or several ranks share one and each keeps its keys and values.
  if (config.heads % size != 0 || (heads % group != 0 && group % heads != 0)) {
    fail(ErrorCode::unsupported,
         "{} heads with {} key/value heads cannot be split over {} processes without cutting one; "
         "the number of processes must divide the heads",
         config.heads, config.kv_heads, size);
  }
  if (config.intermediate < size || config.vocab < size) {
    fail(ErrorCode::unsupported, "the model is too small for {} processes", size);
  }
  shard.heads = {rank * heads, (rank + 1) * heads};
  shard.kv_heads = {shard.heads.begin / group, ceil_div(shard.heads.end, group)};
  shard.inner =
      part_of(config.intermediate, largest_unit(config.intermediate, 128, size), rank, size);
  shard.vocab = part_of(config.vocab, vocab_unit(config.vocab, size), rank, size);
  return shard;
}

ModelConfig config_of(const ModelConfig& whole, const Shard& shard) {
  ModelConfig part = whole;
  if (!shard.is_part()) return part;
  part.heads = shard.heads.size(whole.heads);
  part.kv_heads = shard.kv_heads.size(whole.kv_heads);
  part.intermediate = shard.inner.size(whole.intermediate);
  return part;
}

}  // namespace tessera::model
