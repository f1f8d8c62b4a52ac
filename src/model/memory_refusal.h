// The sentences that say why a model or its cache does not fit, and what would. Numbers in, text
// out: load_model() and make_cache() provide the numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/available_memory.h"
#include "tessera/kv_cache.h"

namespace tessera::model {

struct WeightsRequest {
  AvailableMemory memory{};
  std::int64_t weights = 0;  // that stay
  std::int64_t loading = 0;  // beside them, while they are loaded
  // Settings that need less, as flags: {"--weights nvfp4", bytes}; from large to small.
  struct Other {
    std::string flags;
    std::int64_t bytes = 0;
  };
  std::vector<Other> others{};

  bool fits() const { return weights <= memory.bytes - loading; }
};
std::string refusal(const WeightsRequest& request);

struct CacheRequest {
  AvailableMemory memory{};
  std::int64_t weights = 0;            // of the model, which are there already
  std::int64_t kv = 0, workspace = 0;  // workspace 0: not counted, the cache alone is too large
  CachePolicy policy{};
  std::int64_t tokens = 0;   // of a full cache
  std::int64_t largest = 0;  // the most tokens, of the cache or of its window, that would fit

  bool fits() const { return kv <= memory.bytes - workspace; }
};
std::string refusal(const CacheRequest& request);

// The most tokens from 1 up to `wanted` whose need(tokens) is within `available`; 0 if one token is
// too many. need() must not fall.
std::int64_t largest_that_fits(std::int64_t wanted, std::int64_t available,
                               const std::function<std::int64_t(std::int64_t)>& need);

}  // namespace tessera::model
