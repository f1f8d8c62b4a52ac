// Runs one step of a stream from ids on the host.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/context.h"
#include "tessera/kv_cache.h"
#include "tessera/model.h"
#include "tessera/tensor.h"

namespace tessera {

// Runs the next tokens of the stream through the model. `logits` takes the logits of the last
// tokens, or is empty.
inline void forward_ids(Context& ctx, const Model& model, KvCache& cache,
                        std::span<const std::int32_t> ids, const Tensor& logits) {
  const CacheStep& step = cache.step(ctx, ids, logits.defined() ? logits.size(0) : 0);
  model.forward(ctx, {.step = &step, .logits = logits});
}

// The Context's workspace, with room for the steps of a stream that uses this cache.
inline Workspace& reserved_workspace(Context& ctx, const Model& model, const KvCache& cache,
                                     std::int64_t logit_rows) {
  model.reserve_workspace(ctx, cache.options(), logit_rows);
  return ctx.workspace();
}

}  // namespace tessera
