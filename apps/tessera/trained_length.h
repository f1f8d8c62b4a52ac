// A cache that holds more tokens than the model was trained for: the model then sees distances it
// has never seen, and usually writes nonsense.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model_options.h"
#include "tessera/kv_cache.h"
#include "tessera/model_config.h"

namespace tessera::app {

// A sentence that names the trained length and the largest sensible window or context. Nothing
// where the cache suits the model. `context`: tokens of a full cache; other policies ignore it.
std::optional<std::string> beyond_trained_length(const CachePolicy& policy, std::int64_t context,
                                                 const ModelConfig& config);
// The same as a note of the session: printed now, and part of its JSON.
void note_trained_length(Session& session, const CachePolicy& policy, std::int64_t context);

}  // namespace tessera::app
