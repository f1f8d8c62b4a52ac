// How much scratch memory the steps of streams need, known before the first step.
#pragma once

#include <cstdint>

#include "tessera/context.h"
#include "tessera/kv_cache.h"
#include "tessera/model.h"

namespace tessera::model {

// Sends the largest steps of a stream through forward() while the workspace only counts: the pass
// that will run is the pass that is counted, and no kernel runs. For models whose forward() reads
// and writes tensors through ops alone.
std::int64_t count_workspace(Context& ctx, const Model& model, const KvCacheOptions& cache,
                             std::int64_t logit_rows);
// The same for steps of many sequences within these limits.
std::int64_t count_workspace(Context& ctx, const Model& model, const PagePoolOptions& pool,
                             const CacheBatchLimits& limits, std::int64_t logit_rows);

}  // namespace tessera::model
