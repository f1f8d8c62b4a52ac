// The options that every command with a model shares, and what they open: device, model, tokenizer
// and cache.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/context.h"
#include "tessera/kv_cache.h"
#include "tessera/model.h"
#include "tessera/tokenizer.h"

namespace CLI {
class App;
}

namespace tessera::app {

class ParallelRun;  // parallel_run.h

struct ModelOptions {
  std::string model;  // empty: the default model
  std::string device = "auto";
  std::string dtype;  // empty: as LoadOptions says
  std::string weights = "dense";
  std::vector<std::string> keep_dense;
  std::string activations = "int8";
  int threads = 0;
  bool no_mmap = false;
  bool no_graphs = false;
  std::string fusion = "on";
  FileAccess files = FileAccess::map;  // without --no-mmap
  // Of the cache.
  std::int64_t sinks = 0, window = 0, context = 0;  // 0: not given
  std::string kv_dtype;                             // empty: Model::cache_dtype()
  // Of several processes.
  std::string parallel;  // "tensor:4"; empty: one process
  std::shared_ptr<ParallelRun> run;
};

// --model, --device, --dtype, --weights, --keep-dense, --no-mmap, --activations, --threads,
// --no-graphs, --fusion
void add_model_options(CLI::App& command, ModelOptions& options);
// --attention-sinks, --window, --context, --kv-dtype
void add_cache_options(CLI::App& command, ModelOptions& options);

std::filesystem::path model_path(const ModelOptions& options);
LoadOptions load_options(const ModelOptions& options);
// Of the Context that runs the model; with --parallel, of this rank's.
ContextOptions context_options(const ModelOptions& options);
// With --parallel, the rank's part, which leads the others.
std::unique_ptr<Model> load_part_or_whole(Context& ctx, const ModelOptions& options,
                                          const LoadOptions& load);
// "auto": the first GPU, the CPU where there is none. Throws where there is no such device.
Device find_device(const std::string& name);

// What a user should know about a model that was just loaded: its own notes, and that --weights
// does not apply to layers that the checkpoint has packed.
std::vector<std::string> load_notes(const Model& model, const std::filesystem::path& directory,
                                    const ModelOptions& options);

// A model that is ready to run.
struct Session {
  std::filesystem::path directory;
  std::unique_ptr<Context> ctx;
  std::unique_ptr<Model> model;
  std::optional<Tokenizer> tokenizer;  // none where the folder has no tokenizer.json
  double load_seconds = 0;
  std::vector<std::string> notes;  // what the user should know: the model's, and of this run

  // Prints a note on standard error, and keeps it for the run's JSON.
  void note(std::string text);
  // Throws where there is none, and says what to do: "give --prompt-ids".
  const Tokenizer& need_tokenizer(const std::string& instead) const;
};
// Shows a progress bar, and the model's notes on standard error. `on_progress` is told as well;
// what it throws ends the loading.
Session open_session(
    const ModelOptions& options,
    const std::function<void(std::int64_t done, std::int64_t total)>& on_progress = {});

// Options that contradict each other are refused here, before a model is loaded.
void check_cache_options(const ModelOptions& options);
// The policy that the options ask for. --attention-sinks without --window: as many recent tokens as
// the model was trained for have room beside the sinks.
CachePolicy cache_policy(const ModelOptions& options, const ModelConfig& config);
// --kv-dtype; none: Model::cache_dtype().
std::optional<DType> cache_dtype(const ModelOptions& options);
// "f32", "f16", "bf16", "fp8", "int8", as --kv-dtype takes it.
std::string_view cache_dtype_name(DType dtype);
// Tokens of a full cache: --context, or what the model was trained for.
std::int64_t full_context(const ModelOptions& options, const ModelConfig& config);
// The most tokens of a prompt that one step takes, if not `otherwise`: with --parallel context,
// enough for every rank.
std::int64_t prompt_step(const ModelOptions& options, std::int64_t otherwise);
// What to do where a full cache is too small: "use --attention-sinks 4 --window 252 for ..."
std::string streaming_advice(const ModelConfig& config);

}  // namespace tessera::app
