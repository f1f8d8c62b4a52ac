// Runs one step of a stream from ids on the host.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/buffer.h"
#include "tessera/context.h"
#include "tessera/kv_cache.h"
#include "tessera/model.h"
#include "tessera/tensor.h"

namespace tessera {

// Runs the next tokens of the stream through the model. `id_room` is an i32 tensor on the model's
// device with room for them. `logits` takes the logits of the last tokens, or is empty.
inline void forward_ids(Context& ctx, const Model& model, KvCache& cache,
                        std::span<const std::int32_t> ids, const Tensor& id_room,
                        const Tensor& logits) {
  const auto n = static_cast<std::int64_t>(ids.size());
  const CacheStep step = cache.step(ctx, n);
  const Tensor on_device = id_room.slice(0, 0, n);
  copy_bytes(ctx, on_device.data, ctx.device(), ids.data(), Device::cpu(), on_device.bytes());
  model.forward(ctx, {.ids = on_device, .step = &step, .cache = &cache, .logits = logits});
}

// The Context's workspace, with room for the steps of a stream that uses this cache.
inline Workspace& reserved_workspace(Context& ctx, const Model& model, const KvCache& cache,
                                     std::int64_t logit_rows) {
  model.reserve_workspace(ctx, cache.options(), logit_rows);
  return ctx.workspace();
}

}  // namespace tessera
