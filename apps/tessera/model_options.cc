#include "model_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint_summary.h"
#include "core/fail.h"
#include "default_model.h"
#include "help_format.h"
#include "model/checkpoint/input_file.h"
#include "option_checks.h"
#include "parallel_run.h"
#include "progress.h"
#include "tessera/quant.h"
#include "usage_error.h"

namespace tessera::app {
namespace {

// dense, and every packed format.
std::vector<std::string> weight_formats() {
  std::vector<std::string> names{std::string(name(Format::dense))};
  for (const FormatInfo& format : formats()) names.emplace_back(format.name);
  return names;
}

// What StreamingLLM found to be enough.
constexpr std::int64_t kUsualSinks = 4;

// --kv-dtype
struct CacheDtype {
  std::string_view name;
  DType dtype;
};
constexpr CacheDtype kCacheDtypes[] = {{"f32", DType::f32},
                                       {"f16", DType::f16},
                                       {"bf16", DType::bf16},
                                       {"fp8", DType::f8e4m3},
                                       {"int8", DType::i8}};

}  // namespace

void add_model_options(CLI::App& command, ModelOptions& options) {
  under_heading(command, "Model", [&] {
    command
        .add_option("--model", options.model,
                    "Folder of a Hugging Face checkpoint; without it, the bundled story model")
        ->type_name("DIR");
    command.add_option("--device", options.device, "Where to run; auto uses a GPU if there is one")
        ->check(one_of({"auto", "cpu", "cuda"}))
        ->capture_default_str();
    command
        .add_option("--dtype", options.dtype,
                    "Type of activations and KV cache; by default f32 on the CPU, and the "
                    "checkpoint's own on a GPU")
        ->check(one_of({"f32", "f16", "bf16"}));
    command
        .add_option("--weights", options.weights,
                    "Pack dense layers while loading (int4 in groups of 32)")
        ->type_name("FORMAT")
        ->check(one_of(weight_formats()))
        ->capture_default_str();
    command
        .add_option(
            "--keep-dense", options.keep_dense,
            "With --weights: layers to leave dense, such as '*.attention.dense'; repeatable")
        ->type_name("PATTERN")
        ->allow_extra_args(false);
    command.add_flag("--no-mmap", options.no_mmap,
                     "Copy the weights into memory, so that their files may be rewritten");
    command
        .add_option("--activations", options.activations,
                    "How the CPU multiplies packed weights: int8 is faster, exact decodes to f32")
        ->check(one_of({"exact", "int8"}))
        ->capture_default_str();
    command
        .add_option("--threads", options.threads, "CPU threads; 0: all that the process may use")
        ->check(whole_number(0, 1024))
        ->capture_default_str();
    command.add_flag("--no-graphs", options.no_graphs,
                     "On a GPU: launch kernels one by one, to compare with recorded steps");
    command
        .add_option("--fusion", options.fusion,
                    "On a GPU: on runs all layers of one token in one kernel, where there is one "
                    "for the model; off runs op by op, to compare")
        ->check(one_of({"on", "off"}))
        ->capture_default_str();
  });
}

void add_cache_options(CLI::App& command, ModelOptions& options) {
  under_heading(command, "Cache", [&] {
    command
        .add_option("--attention-sinks", options.sinks,
                    "Keep the first N tokens and the last --window ones, for endless streams (4 is "
                    "usual)")
        ->check(whole_number(1));
    command
        .add_option("--window", options.window,
                    "Keep the last N tokens; without --attention-sinks, quality suffers")
        ->check(whole_number(1));
    command
        .add_option(
            "--context", options.context,
            "Tokens that a full cache holds; by default the length the model was trained for")
        ->check(whole_number(2));
    std::vector<std::string> dtypes;
    for (const CacheDtype& row : kCacheDtypes) dtypes.emplace_back(row.name);
    command
        .add_option("--kv-dtype", options.kv_dtype,
                    "Type of stored keys and values; by default that of the activations, or f16 "
                    "where the CPU rounds activations to 8 bits. int8 and fp8 take half the memory "
                    "of f16")
        ->check(one_of(dtypes));
  });
}

std::filesystem::path model_path(const ModelOptions& options) {
  return options.model.empty() ? default_model_path() : std::filesystem::path(options.model);
}

LoadOptions load_options(const ModelOptions& options) {
  if (options.weights == "dense" && !options.keep_dense.empty()) {
    fail_usage("--keep-dense {} needs --weights: without that, no layer is packed",
               options.keep_dense[0]);
  }
  LoadOptions load;
  const std::map<std::string, DType> dtypes = {
      {"f32", DType::f32}, {"f16", DType::f16}, {"bf16", DType::bf16}};
  if (!options.dtype.empty()) load.dtype = dtypes.at(options.dtype);
  if (options.weights != "dense") {
    const Format format = parse_format(options.weights);
    // Published checkpoints have groups of 128. Groups of 32 take a third of a bit more and no more
    // time, and lose less (docs/results/formats.md).
    load.pack = QuantizeOptions{.format = format, .group = format == Format::int4 ? 32 : -1};
  }
  load.keep_dense = options.keep_dense;
  load.fuse_layers = options.fusion == "on";
  load.files = options.no_mmap ? FileAccess::copy : options.files;
  return load;
}

ContextOptions context_options(const ModelOptions& options) {
  ContextOptions context{
      .device = options.run ? options.run->device() : find_device(options.device),
      .threads = options.threads,
      .activations = options.activations == "exact" ? Activations::exact : Activations::int8,
      .graphs = !options.no_graphs};
  if (!options.run) return context;
  context.threads = options.run->threads(options.threads);
  context.graphs = false;  // a recorded step would not tell the other ranks that it runs
  return context;
}

std::unique_ptr<Model> load_part_or_whole(Context& ctx, const ModelOptions& options,
                                          const LoadOptions& load) {
  if (options.run) return options.run->load(ctx, model_path(options), load);
  return load_model(ctx, model_path(options), load);
}

Device find_device(const std::string& name) {
  if (name == "cpu") return Device::cpu();
  for (const DeviceInfo& info : devices()) {
    if (info.device.is_cuda() && info.usable()) return info.device;
  }
  if (name == "auto") return Device::cpu();
  fail(ErrorCode::unsupported, "--device cuda: {}; use --device cpu", cuda_status());
}

const Tokenizer& Session::need_tokenizer(const std::string& instead) const {
  if (!tokenizer) {
    fail(ErrorCode::file, "{} has no tokenizer.json, so text cannot be read or written; {}",
         directory.string(), instead);
  }
  return *tokenizer;
}

std::vector<std::string> load_notes(const Model& model, const std::filesystem::path& directory,
                                    const ModelOptions& options) {
  std::vector<std::string> notes = model.notes();
  if (options.weights == "dense") return notes;
  const CheckpointSummary stored = summarise(*model::Checkpoint::open(directory));
  if (stored.packed.empty()) return notes;
  const auto& layers = model.linear_layers();
  const bool any = std::any_of(layers.begin(), layers.end(), [&](const LayerInfo& layer) {
    return name(layer.weight.format) == options.weights;
  });
  notes.push_back(fmt::format(
      "the checkpoint is already packed as {}; --weights {} applies only to its dense layers{}",
      fmt::join(stored.packed, " and "), options.weights, any ? "" : ", and it has none"));
  return notes;
}

void Session::note(std::string text) {
  fmt::print(stderr, "note: {}\n", text);
  notes.push_back(std::move(text));
}

Session open_session(
    const ModelOptions& options,
    const std::function<void(std::int64_t done, std::int64_t total)>& on_progress) {
  LoadOptions load = load_options(options);
  const auto start = std::chrono::steady_clock::now();
  Session session;
  session.directory = model_path(options);
  session.ctx = std::make_unique<Context>(context_options(options));
  {
    Progress progress("loading");
    load.progress = [&](std::int64_t done, std::int64_t total) {
      progress.update(done, total);
      if (on_progress) on_progress(done, total);
    };
    session.model = load_part_or_whole(*session.ctx, options, load);
  }
  if (model::is_named(session.directory / "tokenizer.json")) {
    session.tokenizer = Tokenizer::from_file(session.directory);
  }
  for (std::string& note : load_notes(*session.model, session.directory, options)) {
    session.note(std::move(note));
  }
  session.load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return session;
}

void check_cache_options(const ModelOptions& options) {
  if (options.context > 0 && (options.window > 0 || options.sinks > 0)) {
    fail_usage("--context {} sizes a full cache; leave it out with --window and --attention-sinks",
               options.context);
  }
}

CachePolicy cache_policy(const ModelOptions& options, const ModelConfig& config) {
  if (options.sinks == 0) {
    return options.window > 0 ? CachePolicy::last(options.window) : CachePolicy::full();
  }
  if (options.window > 0) return CachePolicy::sinks(options.sinks, options.window);
  if (options.sinks >= config.max_positions) {
    fail(ErrorCode::invalid_argument,
         "--attention-sinks {} leaves no room for recent tokens: the model was trained for {} "
         "tokens; use fewer, or give --window N",
         options.sinks, config.max_positions);
  }
  return CachePolicy::sinks(options.sinks, config.max_positions - options.sinks);
}

std::optional<DType> cache_dtype(const ModelOptions& options) {
  for (const CacheDtype& row : kCacheDtypes) {
    if (row.name == options.kv_dtype) return row.dtype;
  }
  return std::nullopt;
}

std::string_view cache_dtype_name(DType dtype) {
  for (const CacheDtype& row : kCacheDtypes) {
    if (row.dtype == dtype) return row.name;
  }
  return name(dtype);
}

std::int64_t full_context(const ModelOptions& options, const ModelConfig& config) {
  return options.context > 0 ? options.context : config.max_positions;
}

std::int64_t prompt_step(const ModelOptions& options, std::int64_t otherwise) {
  constexpr std::int64_t kRowsOfARank = 1024;  // the more, the less often keys go around
  if (!options.run || !options.run->splits_context()) return otherwise;
  return std::max(otherwise, kRowsOfARank * options.run->size());
}

std::string streaming_advice(const ModelConfig& config) {
  const std::int64_t sinks = std::min(kUsualSinks, config.max_positions - 1);
  const std::string kept = sinks > 0 ? fmt::format("--attention-sinks {} ", sinks) : "";
  return fmt::format("use {}--window {} for a stream of any length", kept,
                     config.max_positions - sinks);
}

}  // namespace tessera::app
