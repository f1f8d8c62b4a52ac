#include "support/toy_model.h"

#include <cmath>
#include <cstring>
#include <span>

#include "core/philox.h"

namespace tessera::test {

ToyModel::ToyModel(std::int64_t vocab) {
  config_.vocab = vocab;
  config_.layers = config_.heads = config_.kv_heads = 1;
  config_.head_dim = config_.hidden = 8;
  config_.max_positions = 64;
}

KvCache ToyModel::cache(Context& ctx, const CachePolicy& policy, std::int64_t max_tokens,
                        std::int64_t max_step) const {
  return KvCache(ctx, {.layers = 1,
                       .kv_heads = 1,
                       .head_dim = 8,
                       .policy = policy,
                       .max_tokens = max_tokens,
                       .max_step = max_step,
                       .page_size = 16});
}

std::vector<float> ToyModel::logits(std::int32_t before, std::int32_t last) const {
  std::vector<float> row(static_cast<std::size_t>(config_.vocab));
  for (std::size_t i = 0; i < row.size(); ++i) {
    const PhiloxWords words =
        philox(99, {static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(before),
                    static_cast<std::uint32_t>(last), 0});
    row[i] = static_cast<float>(words[0] >> 8) * 0x1p-22f;  // 0 to 4
  }
  const auto next = next_.find(last);
  if (next != next_.end()) row[static_cast<std::size_t>(next->second)] = 50.f;
  return row;
}

double ToyModel::logprob(std::int32_t before, std::int32_t last, std::int32_t target) const {
  const std::vector<float> row = logits(before, last);
  double sum = 0;
  for (const float v : row) sum += std::exp(static_cast<double>(v));
  return row[static_cast<std::size_t>(target)] - std::log(sum);
}

// The token before the one in this row of a group, or -1 at the beginning of a stream.
std::int32_t ToyModel::token_before(const CacheStep& step, const AttentionGroup& group,
                                    std::int64_t row) const {
  const std::int32_t* offsets = group.q_offsets.ptr<const std::int32_t>();
  std::int64_t sequence = 0, first = 0, queries = group.rows / group.sequences;
  if (offsets != nullptr) {
    while (offsets[sequence + 1] <= row) ++sequence;
    first = offsets[sequence];
    queries = offsets[sequence + 1] - first;
  } else {
    sequence = row / queries;
    first = sequence * queries;
  }
  const PageTable& pages = group.pages;
  const std::int64_t keys = pages.lengths.ptr<const std::int32_t>()[sequence];
  const std::int64_t key = keys - queries + (row - first) - 1;
  if (key < 0) return -1;
  constexpr std::int32_t kNoHole[] = {0, 0};
  const std::int32_t* hole =
      pages.holes.defined() ? pages.holes.ptr<const std::int32_t>() + 2 * sequence : kNoHole;
  const std::int64_t page_size = step.pool->options().page_size;
  const std::int64_t slot = key < hole[0] ? key : key + hole[1];
  const std::int32_t* table =
      pages.table.ptr<const std::int32_t>() + sequence * pages.table.strides[0];
  const std::int64_t at = table[slot / page_size] * page_size + slot % page_size;
  return static_cast<std::int32_t>(step.pool->keys(0).ptr<float>()[at * config_.head_dim]);
}

void ToyModel::forward(Context&, const ForwardArgs& args) const {
  const CacheStep& step = *args.step;
  const auto n = static_cast<std::size_t>(step.tokens);
  const std::span ids(step.ids.ptr<const std::int32_t>(), n);
  const std::int32_t* slots = step.slots.ptr<const std::int32_t>();
  for (std::size_t i = 0; i < n; ++i) {
    step.pool->keys(0).ptr<float>()[slots[i] * config_.head_dim] = static_cast<float>(ids[i]);
  }
  if (step.positions.ptr<const std::int64_t>()[0] == 0) stream.clear();
  stream.insert(stream.end(), ids.begin(), ids.end());
  step_sizes.push_back(step.tokens);
  logits_rows.push_back(args.logits.defined() ? step.logits : 0);
  if (!args.logits.defined()) return;
  const bool all = step.wants_all_logits();
  for (const AttentionGroup& group : all ? step.groups : step.logit_groups) {
    for (std::int64_t i = 0; i < group.rows; ++i) {
      const std::int64_t logit = group.first_row + i;
      const std::int64_t row = step.first_logit_row >= 0
                                   ? step.first_logit_row + logit
                                   : step.logit_rows.ptr<const std::int32_t>()[logit];
      const std::vector<float> values =
          logits(token_before(step, group, i), ids[static_cast<std::size_t>(row)]);
      std::memcpy(args.logits.select(0, logit).data, values.data(), values.size() * sizeof(float));
    }
  }
}

}  // namespace tessera::test
