// What a run took, and what ran where: the two lines at the end, and its part of a JSON object.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "model_options.h"
#include "tessera/generate.h"

namespace tessera::app {

// The most memory that this process ever held.
std::int64_t peak_rss_bytes();

// The format of most linear weights of the model's layers: "nvfp4"; "dense" where they are not
// packed. The head does not count: it often stays dense, and outweighs a small model's layers.
std::string weights_name(const Model& model);
// All formats, the most used one first, and a head that differs: "nvfp4 and dense", "int4, dense
// head".
std::string weights_text(const Model& model);
// "exact" or "int8"
std::string activations_name(const Context& ctx);
// "int4 weights, dense head, int8 activations, f32, cpu (AVX2, 2 threads)"
std::string what_ran_where(const Session& session);

// Milliseconds of a run; 0 where there was nothing to time.
struct Timing {
  double ttft_ms = 0;  // from the prompt to the first token
  double tpot_ms = 0;  // of each further token
  double tokens_per_s = 0;
};
Timing timing_of(const GenerateResult& result);

// Two lines, the second without its end: tokens and time; memory and device.
std::string summary_text(const Session& session, const KvCache& cache,
                         const GenerateResult& result);
// device, weights, memory_bytes, threads, notes, version, ...
nlohmann::json session_json(const Session& session, const KvCache& cache);

// The cache of a run, be it a KvCache or an engine's.
struct CacheFacts {
  CachePolicy policy{};
  DType dtype = DType::f32;
  std::int64_t bytes = 0;
};
CacheFacts facts_of(const KvCache& cache);

// "weights 93 MiB (int4), KV 12 MiB (int8), peak 205 MiB; cpu (...)"
std::string memory_text(const Session& session, const CacheFacts& cache);
nlohmann::json session_json(const Session& session, const CacheFacts& cache);

}  // namespace tessera::app
