// The engine as the command line asks for it: its flags, its draft model, what came of its guesses.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "model_options.h"
#include "run_summary.h"
#include "tessera/engine.h"

namespace CLI {
class App;
}

namespace tessera::app {

struct EngineFlags {
  std::optional<std::string> speculate;  // "ngram" or "off"
  std::optional<std::string> draft;      // the folder of a smaller model
  bool batch_invariant = false;

  bool any() const { return speculate || draft || batch_invariant; }
  SpeculationOptions::Kind kind() const;
};

// --speculate, --draft, --batch-invariant
void add_engine_flags(CLI::App& command, EngineFlags& flags);
// Flags that contradict each other are refused here, before a model is loaded.
void check_engine_flags(const EngineFlags& flags);

// The model of --draft, on the session's device; null where none is given. It is packed as the
// model is. Refuses one with another vocabulary.
std::unique_ptr<Model> load_draft(Session& session, const ModelOptions& options,
                                  const EngineFlags& flags);

// `context`: of sequences that keep all of their tokens. Of `model`, --kv-dtype counts.
EngineOptions engine_options(const EngineFlags& flags, const ModelOptions& model,
                             const Model* draft, const CachePolicy& policy, std::int64_t context,
                             std::int64_t max_sequences);

// The pages of keys and values.
CacheFacts facts_of(const Engine& engine, const Model& model, const CachePolicy& policy);

// "speculation (ngram): 34 of 80 guesses were right (42%), 1.74 tokens per pass of the model". What
// it gained in time is not known here: guesses have their cost, and nothing ran without them.
std::string speculation_text(const EngineFlags& flags, const EngineStats& stats);
nlohmann::json speculation_json(const EngineFlags& flags, const EngineStats& stats);

}  // namespace tessera::app
