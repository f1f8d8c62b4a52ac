// A model whose passes fail on request, and are those of another model otherwise.
#pragma once

#include <atomic>

#include "tessera/error.h"
#include "tessera/model.h"

namespace tessera::test {

class Brittle final : public Model {
 public:
  explicit Brittle(const Model& model) : model_(model) {
    config_ = model.config();
    dtype_ = model.dtype();
  }
  void forward(Context& ctx, const ForwardArgs& args) const override {
    const int pass = ++passes_;
    const bool fails = fails_next.exchange(false) || (fails_every > 0 && pass % fails_every == 0);
    if (fails) throw Error(ErrorCode::device, "the pass failed");
    if (throws_a_number) throw 5;  // NOLINT: a model of somebody else may throw anything
    model_.forward(ctx, args);
  }
  std::int64_t workspace_bytes(Context& ctx, const PagePoolOptions& pool,
                               const CacheBatchLimits& limits,
                               std::int64_t logit_rows) const override {
    return model_.workspace_bytes(ctx, pool, limits, logit_rows);
  }
  mutable std::atomic<bool> fails_next = false, throws_a_number = false;
  mutable std::atomic<int> fails_every = 0;  // 3: every third pass

 private:
  const Model& model_;
  mutable std::atomic<int> passes_ = 0;
};

}  // namespace tessera::test
