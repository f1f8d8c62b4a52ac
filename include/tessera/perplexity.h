// How well a model predicts a text: the mean negative log likelihood of its tokens (nll, in nats),
// and exp of that, the perplexity.
//
// Two ways to read a text that is longer than the model's context:
//
//   perplexity()         Cuts the text into chunks of the context's length, each read from an empty
//                        cache. The first token of a chunk has nothing before it and is not scored;
//                        if there is a bos token, it is the first. Tokens that two chunks share are
//                        scored in the first of them; the second reads them as context.
//   stream_perplexity()  Reads the text as one stream through a cache, whatever its policy keeps.
//                        Every token but the first is scored.
//
// The figures of the two are not comparable: a chunk's first tokens have little context.
//
// Threads: one call at a time for a Context and its KvCache. The Model may serve others meanwhile.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
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
  std::optional<DType> cache_dtype{};  // of the cache of chunks, as in PoolRequest
  // Called with the tokens scored so far and in all.
  std::function<void(std::int64_t done, std::int64_t total)> progress{};
  // Set from a signal handler or another thread: the result then covers what was scored.
  const std::atomic<bool>* cancel = nullptr;
};

struct PerplexityResult {
  std::int64_t tokens = 0;  // scored
  std::int64_t chunks = 0;
  double nll = 0, nll_error = 0;          // mean, and its standard error
  double ppl = 0, ppl_error = 0;          // exp(nll); exp(nll) * nll_error
  std::vector<float> nlls{};              // of each scored token
  std::vector<std::int64_t> positions{};  // of each scored token: its index in the text, rising
  bool cancelled = false;
};

// The standard error of the mean of a series whose neighbours are alike, as tokens of a text are.
// It comes from the means of blocks of consecutive values, which are nearly independent. A block
// has 256 values, or fewer so that there are at least 16 blocks. An incomplete last block is left
// out of the error. 0 for fewer than two values.
double block_standard_error(std::span<const float> values);

// The cost of one setting against another, token by token. Variation of the text, which both share,
// cancels in the differences and in their error.
struct PairedDifferences {
  std::vector<std::int64_t> positions{};  // of the tokens that both have scored
  std::vector<float> values{};            // nll - base nll, of each of them
  double mean = 0, error = 0;             // error: block_standard_error(values)
};
PairedDifferences paired_differences(const PerplexityResult& result, const PerplexityResult& base);

// Values at positions [begin, end) of the text.
struct PositionBucket {
  std::int64_t begin = 0, end = 0;
  std::int64_t tokens = 0;  // values in it
  double mean = 0, error = 0;
};
// Buckets of `bucket` positions each; those without a value are left out. Positions rise.
std::vector<PositionBucket> by_position(std::span<const std::int64_t> positions,
                                        std::span<const float> values, std::int64_t bucket);

// Scores a text in chunks. Refuses fewer than two tokens, and ids that are not in the vocabulary.
PerplexityResult perplexity(Context& ctx, const Model& model, std::span<const std::int32_t> ids,
                            const PerplexityOptions& options = {});
// Scores a text as one stream, which continues the one in `cache`. Refuses what perplexity()
// refuses. context and stride are not used.
PerplexityResult stream_perplexity(Context& ctx, const Model& model, KvCache& cache,
                                   std::span<const std::int32_t> ids,
                                   const PerplexityOptions& options = {});

}  // namespace tessera
