#include "model_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>

#include "core/fail.h"
#include "default_model.h"
#include "progress.h"
#include "tessera/quant.h"
#include "usage_error.h"

namespace tessera::app {
namespace {

// What StreamingLLM found to be enough.
constexpr std::int64_t kUsualSinks = 4;

constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;  // of a window or a context

}  // namespace

void add_model_options(CLI::App& command, ModelOptions& options) {
  command.add_option("--model", options.model,
                     "Folder of a Hugging Face checkpoint; the small story model where left out");
  command.add_option("--device", options.device, "auto takes a GPU where there is one")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  command
      .add_option("--dtype", options.dtype,
                  "Of activations and the KV cache (f32 on the CPU, as stored on a GPU)")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}));
  command
      .add_option("--weights", options.weights,
                  "Pack dense layers while loading (int4 in groups of 32); dense leaves all as "
                  "stored")
      ->check(CLI::IsMember({"dense", "nvfp4", "mxfp4", "nf4", "int4", "int8", "fp8"}))
      ->capture_default_str();
  command
      .add_option("--keep-dense", options.keep_dense,
                  "With --weights: layers to leave dense, as '*.attention.dense'; repeatable")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      .add_option("--activations", options.activations,
                  "How packed weights are multiplied on the CPU: int8 is faster, exact decodes to "
                  "f32")
      ->check(CLI::IsMember({"exact", "int8"}))
      ->capture_default_str();
  command.add_option("--threads", options.threads, "CPU threads; 0 takes all")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
}

void add_cache_options(CLI::App& command, ModelOptions& options) {
  command
      .add_option("--attention-sinks", options.sinks,
                  "Keep the first N tokens beside the --window last ones: endless streams (4 is "
                  "usual)")
      ->check(CLI::Range(std::int64_t{1}, kMostTokens));
  command
      .add_option("--window", options.window,
                  "Keep the last N tokens; alone it is plain eviction, which loses quality")
      ->check(CLI::Range(std::int64_t{1}, kMostTokens));
  command
      .add_option("--context", options.context,
                  "Tokens that a full cache holds (what the model was trained for)")
      ->check(CLI::Range(std::int64_t{2}, kMostTokens));
}

std::filesystem::path model_path(const ModelOptions& options) {
  return options.model.empty() ? default_model_path() : std::filesystem::path(options.model);
}

LoadOptions load_options(const ModelOptions& options) {
  if (options.weights == "dense" && !options.keep_dense.empty()) {
    fail_usage("--keep-dense {} needs --weights: without it no layer is packed",
               options.keep_dense[0]);
  }
  LoadOptions load;
  const std::map<std::string, DType> dtypes = {
      {"f32", DType::f32}, {"f16", DType::f16}, {"bf16", DType::bf16}};
  if (!options.dtype.empty()) load.dtype = dtypes.at(options.dtype);
  if (options.weights != "dense") {
    const Format format = parse_format(options.weights);
    // Groups of 32 cost a third of a bit more than published checkpoints' 128 and no time, and lose
    // less (docs/results/formats.md).
    load.pack = QuantizeOptions{.format = format, .group = format == Format::int4 ? 32 : -1};
  }
  load.keep_dense = options.keep_dense;
  return load;
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
    fail(ErrorCode::file, "{} has no tokenizer.json, which text needs; {}", directory.string(),
         instead);
  }
  return *tokenizer;
}

Session open_session(const ModelOptions& options) {
  LoadOptions load = load_options(options);
  const auto start = std::chrono::steady_clock::now();
  Session session;
  session.directory = model_path(options);
  session.ctx = std::make_unique<Context>(ContextOptions{
      .device = find_device(options.device),
      .threads = options.threads,
      .activations = options.activations == "exact" ? Activations::exact : Activations::int8});
  {
    Progress progress("loading");
    load.progress = progress.callback();
    session.model = load_model(*session.ctx, session.directory, load);
  }
  if (std::filesystem::exists(session.directory / "tokenizer.json")) {
    session.tokenizer = Tokenizer::from_file(session.directory);
  }
  for (const std::string& note : session.model->notes()) {
    fmt::print(stderr, "note: {}\n", note);
  }
  session.load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return session;
}

void check_cache_options(const ModelOptions& options) {
  if (options.context > 0 && (options.window > 0 || options.sinks > 0)) {
    fail_usage(
        "--context {} is the length of a full cache; leave it out with --window and "
        "--attention-sinks",
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
         "tokens; take fewer, or give --window N",
         options.sinks, config.max_positions);
  }
  return CachePolicy::sinks(options.sinks, config.max_positions - options.sinks);
}

std::int64_t full_context(const ModelOptions& options, const ModelConfig& config) {
  return options.context > 0 ? options.context : config.max_positions;
}

std::string streaming_advice(const ModelConfig& config) {
  const std::int64_t sinks = std::min(kUsualSinks, config.max_positions - 1);
  return fmt::format("--attention-sinks {} --window {} takes a stream of any length", sinks,
                     config.max_positions - sinks);
}

}  // namespace tessera::app
