// What follows from the options of an engine: how much one sequence and one step may take.
#pragma once

#include <cstdint>

#include "tessera/cache_batch.h"
#include "tessera/engine.h"
#include "tessera/kv_cache.h"

namespace tessera::engine {

// Refuses what makes no sense, and fills in the options that are 0, except for the pages.
EngineOptions complete_options(EngineOptions options, const Model& model);

// Of an engine that runs in the pages of a cache.
EngineOptions options_of(KvCache& cache);

// The most rows of logits in a step: each sequence has the one after its newest token, and those
// after its drafts.
std::int64_t most_logits(const EngineOptions& options);

// The most pages of a sequence. Sinks and a window of as many tokens as the context has keep room
// for a whole step besides. The window may begin and end within a page, and the sinks lie on pages
// of their own.
std::int64_t sequence_pages(const EngineOptions& options);

// On a GPU, steps are padded: it replays those whose shape repeats.
CacheBatchLimits batch_limits(const EngineOptions& options, const Context& ctx);
PoolRequest pool_request(const EngineOptions& options, const Context& ctx);

}  // namespace tessera::engine
