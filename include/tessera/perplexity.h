// How well a model predicts a text: the mean negative log likelihood of its tokens (nll, in nats),
// and exp of that, the perplexity.
//
// Two ways to read a text that is longer than the model's context:
//
//   perplexity()         chunks of the context's length, each from an empty cache. The first token
//   of
//                        a chunk has nothing before it and is not scored; where a bos token is put
//                        in front, that is the first. With overlap the tokens
//                        that two chunks share are scored in the first of them only: the second
//                        reads them as context.
//   stream_perplexity()  one stream through a cache, whatever its policy keeps. Every token but the
//                        first is scored.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tessera/context.h"
#include "tessera/kv_cache.h"
#include "tessera/model.h"

namespace tessera {

struct PerplexityOptions {
  std::int64_t context = 0;  // tokens of a chunk; 0: what the model was trained for
  std::int64_t stride = 0;   // from one chunk's start to the next one's, 1 to context; 0: context
  std::int64_t bos = -1;     // put in front of each chunk (of the stream); -1: none
  // Called with tokens scored and in all.
  std::function<void(std::int64_t done, std::int64_t total)> progress{};
  // Set from a signal handler or another thread: the result is then of what was scored.
  const std::atomic<bool>* cancel = nullptr;
};

struct PerplexityResult {
  std::int64_t tokens = 0;  // scored
  std::int64_t chunks = 0;
  double nll = 0, nll_error = 0;  // mean, and its standard error
  double ppl = 0, ppl_error = 0;  // exp(nll); exp(nll) * nll_error
  std::vector<float> nlls{};      // of each scored token
  bool cancelled = false;
};

// The standard error of the mean of a series whose neighbours are alike, as tokens of a text are:
// from the means of blocks of consecutive values, which are nearly independent. Blocks of 256
// values, or shorter ones so that there are at least 16; an incomplete last block is left out of
// the error (not of the mean). 0 for fewer than two values.
double block_standard_error(std::span<const float> values);

// Both refuse fewer than two tokens, and ids that are not in the vocabulary.
PerplexityResult perplexity(Context& ctx, const Model& model, std::span<const std::int32_t> ids,
                            const PerplexityOptions& options = {});
// Goes on with the stream in `cache`. context and stride are not used.
PerplexityResult stream_perplexity(Context& ctx, const Model& model, KvCache& cache,
                                   std::span<const std::int32_t> ids,
                                   const PerplexityOptions& options = {});

}  // namespace tessera
