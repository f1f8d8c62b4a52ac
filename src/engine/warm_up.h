// Steps of all sizes before the first request.
#pragma once

#include <cstdint>

#include "engine/step_runner.h"
#include "tessera/cache_batch.h"
#include "tessera/engine.h"
#include "tessera/page_pool.h"

namespace tessera::engine {

// A GPU loads a kernel at its first use, and cuBLASLt is asked once for each range of tokens. Both
// take up to 20 ms when a step is larger than all before, and every stream in progress waits. So
// the engine may run a step of each range before: alone, and beside a stream. Nothing is kept of
// them. Sizes that no sequence has, or for which there are no pages, are left out.
void warm_up(Context& ctx, PagePool& pool, CacheBatch& batch, StepRunner& runner,
             const EngineOptions& options);

}  // namespace tessera::engine
