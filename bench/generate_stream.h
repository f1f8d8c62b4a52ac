// bench_generate --stream: the time of a token at marks of one long stream with attention sinks.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/context.h"
#include "tessera/model.h"

namespace tessera::bench {

struct StreamOptions {
  std::int64_t tokens = 0;  // of the stream; 0: no stream
  std::int64_t sinks = 4, window = 252;
  bool sample = false;  // the tokens at a mark are drawn by generate(), not given
};

// Prints one JSON object for each mark. Between marks, `step` tokens are read at once. `model_name`
// and `weights` are printed as they are.
void measure_stream(Context& ctx, const Model& model, const StreamOptions& options,
                    std::int64_t step, const std::string& model_name, const std::string& weights);

}  // namespace tessera::bench
