// A model without weights, for tests of the code around a model. Its logits are a fixed function of
// the last two tokens. It stores each token in the cache and reads the one before the last from
// there, so that a wrong page gives wrong logits. It records everything it was given. CPU only.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tessera/kv_cache.h"
#include "tessera/model.h"

namespace tessera::test {

class ToyModel : public Model {
 public:
  explicit ToyModel(std::int64_t vocab);

  void forward(Context& ctx, const ForwardArgs& args) const override;

  // From now on `to` is by far the most likely token after `from`.
  void always(std::int32_t from, std::int32_t to) { next_[from] = to; }
  void set_eos(std::vector<std::int64_t> ids) { config_.eos = std::move(ids); }

  // The logits after ... before, last; before is -1 at the beginning of a stream.
  std::vector<float> logits(std::int32_t before, std::int32_t last) const;
  // ln p(target | before, last), in f64.
  double logprob(std::int32_t before, std::int32_t last, std::int32_t target) const;

  KvCache cache(Context& ctx, const CachePolicy& policy, std::int64_t max_tokens,
                std::int64_t max_step = 8) const;

  mutable std::vector<std::int32_t> stream;       // of one sequence, since it began
  mutable std::vector<std::int64_t> step_sizes;   // of every forward
  mutable std::vector<std::int64_t> logits_rows;  // of every forward

 private:
  std::int32_t token_before(const CacheStep& step, const AttentionGroup& group,
                            std::int64_t row) const;

  std::map<std::int32_t, std::int32_t> next_;
};

}  // namespace tessera::test
