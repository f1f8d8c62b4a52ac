// What a run took, and what ran where: the line at the end, and its part of a JSON object.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "model_options.h"
#include "tessera/generate.h"

namespace tessera::app {

// The most memory that this process ever held.
std::int64_t peak_rss_bytes();

// The format of most of the model's linear weights: "nvfp4"; "dense" where they are not packed.
std::string weights_name(const Model& model);
// "exact" or "int8"
std::string activations_name(const Context& ctx);
// "nvfp4 weights, int8 activations, f32, cpu (AVX2, 2 threads)"
std::string what_ran_where(const Session& session);

// Milliseconds of a run; 0 where there was nothing to time.
struct Timing {
  double ttft_ms = 0;  // from the prompt to the first token
  double tpot_ms = 0;  // of each further token
  double tokens_per_s = 0;
};
Timing timing_of(const GenerateResult& result);

// One line without its end: tokens, time to first token, ms per token, tokens/s, memory, what ran
// where.
std::string summary_line(const Session& session, const KvCache& cache,
                         const GenerateResult& result);
// device, weights, memory_bytes, threads, version, ...
nlohmann::json session_json(const Session& session, const KvCache& cache);

}  // namespace tessera::app
