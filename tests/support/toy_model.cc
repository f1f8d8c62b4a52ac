#include "support/toy_model.h"

#include <cmath>
#include <cstring>

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

void ToyModel::forward(Context&, const ForwardArgs& args) const {
  const std::int64_t n = args.ids.size(0);
  if (args.cache->seen() == n) stream.clear();
  const std::int32_t* ids = args.ids.ptr<const std::int32_t>();
  const std::size_t old = stream.size();
  stream.insert(stream.end(), ids, ids + n);
  step_sizes.push_back(n);
  const std::int64_t rows = args.logits.defined() ? args.logits.size(0) : 0;
  logits_rows.push_back(rows);
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::size_t at = old + static_cast<std::size_t>(n - rows + r);
    const std::vector<float> row = logits(at == 0 ? -1 : stream[at - 1], stream[at]);
    std::memcpy(args.logits.select(0, r).data, row.data(), row.size() * sizeof(float));
  }
}

}  // namespace tessera::test
