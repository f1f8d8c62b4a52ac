// One setting of `tessera perplexity`: what it asks for, running it over a text, and its JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model_options.h"
#include "tessera/perplexity.h"

namespace CLI {
class App;
}

namespace tessera::app {

struct PerplexitySetting {
  std::string label;  // as --compare gives it; empty: the command line's own flags
  ModelOptions model;
  std::int64_t stride = 0;  // 0: not given

  // One stream through a cache that evicts; otherwise chunks, each from an empty cache.
  bool streams() const { return model.window > 0 || model.sinks > 0; }
};
// --stride, and the options of the cache and of the model.
void add_setting_options(CLI::App& command, PerplexitySetting& setting);
// Flags that contradict each other are refused here, before a model is loaded.
void check_setting(const PerplexitySetting& setting);
// Whether both run the same weights in the same way: one Session serves both.
bool same_session(const ModelOptions& a, const ModelOptions& b);

struct PerplexityText {
  std::string name;  // the file as given; "standard input"; "--text"
  std::string text;
  std::int64_t max_tokens = 0;  // 0: all
};
std::vector<std::int32_t> encode(const Session& session, const PerplexityText& text);

// A setting, what ran for it, and what came out.
struct ScoredSetting {
  PerplexitySetting setting;
  PerplexityResult result;
  KvCacheOptions cache;  // policy and tokens
  std::int64_t bos = -1, weight_bytes = 0;
  double seconds = 0;
  std::string model, device, weights, activations, dtype;
  DType cache_dtype = DType::f32;
  std::string summary;  // what ran where
  int threads = 0;
  std::vector<std::string> notes;  // what the user should know, as on standard error
};
// Shows a progress bar with this name.
ScoredSetting score(const Session& session, const PerplexitySetting& setting,
                    const std::vector<std::int32_t>& ids, const std::string& progress_name);

// "chunks of 512 tokens", "one stream, sinks(4, 252)"
std::string reading_text(const ScoredSetting& scored);
// Every setting and every figure.
nlohmann::json to_json(const ScoredSetting& scored);
// About the text: name, tokens.
nlohmann::json to_json(const PerplexityText& text, std::size_t tokens);

}  // namespace tessera::app
