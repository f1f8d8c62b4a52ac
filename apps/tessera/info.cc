// tessera info: describes a checkpoint. It reads only headers, so it is fast for models of any
// size.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint_summary.h"
#include "commands.h"
#include "core/cache_dtype.h"
#include "core/size_text.h"
#include "model/chat/program.h"
#include "model/checkpoint/input_file.h"
#include "model_options.h"
#include "run_summary.h"
#include "tessera/chat.h"
#include "tessera/error.h"
#include "tessera/model_config.h"
#include "tessera/tokenizer.h"
#include "usage_error.h"

namespace tessera::app {
namespace {

struct Info {
  std::filesystem::path directory;
  ModelConfig config;
  CheckpointSummary checkpoint;
  std::optional<std::int64_t> tokens;  // of the tokenizer
  std::string chat;                    // the file with its template; empty: none
};

Info read_info(const ModelOptions& options) {
  Info info;
  info.directory = model_path(options);
  const auto checkpoint = model::Checkpoint::open(info.directory);
  info.config = read_model_config(info.directory);
  info.checkpoint = summarise(*checkpoint);
  if (model::is_named(info.directory / "tokenizer.json")) {
    info.tokens = Tokenizer::from_file(info.directory).vocab_size();
  }
  try {
    if (const auto chat = folder_chat_template(info.directory)) {
      info.chat = chat->name;
      model::chat::Program{chat->source};  // refuses what the interpreter does not know
    }
  } catch (const Error& error) {
    info.checkpoint.notes.emplace_back(error.what());
  }
  return info;
}

// Keys and values of one token in all layers.
std::int64_t kv_bytes_per_token(const ModelConfig& c, DType dtype) {
  const std::int64_t scale = has_scales(dtype) ? size_of(DType::f32) : 0;
  return 2 * c.layers * c.kv_heads * (c.head_dim * size_of(dtype) + scale);
}

// "none", "1024", "1024 (12 of 24 layers)"
std::string windows_text(const ModelConfig& config) {
  const std::set<std::int64_t> sizes(config.windows.begin(), config.windows.end());
  const auto with =
      std::count_if(config.windows.begin(), config.windows.end(), [](auto w) { return w > 0; });
  if (with == 0) return "none";
  std::string text = fmt::format("{}", *sizes.rbegin());
  if (with < config.layers) text += fmt::format(" ({} of {} layers)", with, config.layers);
  return text;
}

std::string_view scaling_name(RopeScaling scaling) {
  switch (scaling) {
    case RopeScaling::none:
      return "none";
    case RopeScaling::linear:
      return "linear";
    case RopeScaling::llama3:
      return "llama3";
  }
  return "unknown";
}

std::string count_text(std::int64_t count) {
  const double value = static_cast<double>(count);
  if (count >= 1'000'000'000) return fmt::format("{:.2f} billion", value / 1e9);
  if (count >= 1'000'000) return fmt::format("{:.1f} million", value / 1e6);
  return fmt::format("{}", count);
}

void print_info(const Info& info) {
  const ModelConfig& c = info.config;
  const auto row = [](std::string_view what, const std::string& value) {
    fmt::print("{:<16} {}\n", what, value);
  };
  row("model", info.directory.string());
  row("architecture",
      fmt::format("{}{}", c.architecture, c.parallel_residual ? ", parallel residual" : ""));
  row("layers", fmt::format("{}, hidden {}, intermediate {}", c.layers, c.hidden, c.intermediate));
  row("heads",
      fmt::format("{} of {} elements, {} for keys and values", c.heads, c.head_dim, c.kv_heads));
  row("rotary", fmt::format("{} of {} elements, theta {}, scaling {}", c.rope.dims, c.head_dim,
                            c.rope.theta, scaling_name(c.rope.scaling)));
  row("sliding window", windows_text(c));
  row("trained for", fmt::format("{} tokens", c.max_positions));
  row("vocabulary",
      fmt::format("{}{}", c.vocab, c.tied_head ? ", head tied to the embedding" : ""));
  row("bos, eos",
      fmt::format("{}, [{}]", c.bos < 0 ? "none" : std::to_string(c.bos), fmt::join(c.eos, ", ")));
  row("parameters", count_text(info.checkpoint.parameters));
  row("weights", size_text(info.checkpoint.bytes));
  for (const auto& [format, share] : info.checkpoint.formats) {
    row("", fmt::format("{:<6} {:>5} tensors {:>14} numbers {:>10}", format, share.tensors,
                        count_text(share.parameters), size_text(share.bytes)));
  }
  row("KV per token", fmt::format("{} in f32, {} in f16 or bf16, {} in int8 or fp8",
                                  size_text(kv_bytes_per_token(c, DType::f32)),
                                  size_text(kv_bytes_per_token(c, DType::f16)),
                                  size_text(kv_bytes_per_token(c, DType::i8))));
  row("tokenizer", info.tokens ? fmt::format("{} tokens", *info.tokens) : "none");
  row("chat template", info.chat.empty() ? "none" : info.chat);
  for (const std::string& note : info.checkpoint.notes) row("note", note);
}

void print_info_json(const Info& info) {
  const ModelConfig& c = info.config;
  nlohmann::json formats = nlohmann::json::object();
  for (const auto& [format, share] : info.checkpoint.formats) {
    formats[format] = {
        {"tensors", share.tensors}, {"parameters", share.parameters}, {"bytes", share.bytes}};
  }
  const nlohmann::json json = {
      {"model", info.directory.string()},
      {"architecture", c.architecture},
      {"layers", c.layers},
      {"hidden", c.hidden},
      {"intermediate", c.intermediate},
      {"heads", c.heads},
      {"kv_heads", c.kv_heads},
      {"head_dim", c.head_dim},
      {"parallel_residual", c.parallel_residual},
      {"tied_head", c.tied_head},
      {"rope",
       {{"dims", c.rope.dims},
        {"theta", c.rope.theta},
        {"scaling", scaling_name(c.rope.scaling)},
        {"factor", c.rope.factor}}},
      {"windows", c.windows},
      {"max_positions", c.max_positions},
      {"vocab", c.vocab},
      {"bos", c.bos < 0 ? nlohmann::json() : nlohmann::json(c.bos)},
      {"eos", c.eos},
      {"parameters", info.checkpoint.parameters},
      {"weight_bytes", info.checkpoint.bytes},
      {"formats", formats},
      {"kv_bytes_per_token",
       {{"f32", kv_bytes_per_token(c, DType::f32)},
        {"f16", kv_bytes_per_token(c, DType::f16)},
        {"int8", kv_bytes_per_token(c, DType::i8)}}},
      {"tokenizer_tokens", info.tokens ? nlohmann::json(*info.tokens) : nlohmann::json()},
      {"chat_template", info.chat.empty() ? nlohmann::json() : nlohmann::json(info.chat)},
      {"notes", info.checkpoint.notes}};
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

Command add_info(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("info", "Describe a checkpoint: architecture, size, formats");
  struct Options {
    ModelOptions model;
    std::string folder;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  command
      ->add_option("DIR", options->folder,
                   "Folder of a Hugging Face checkpoint; without it, the bundled story model")
      ->type_name("DIR");
  command->add_option("--model", options->model.model, "The same as DIR")->type_name("DIR");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->footer(
      "Examples:\n"
      "  tessera info pythia-160m\n"
      "  tessera info --model llama-nvfp4 --json | jq .formats");
  return [options] {
    if (!options->folder.empty() && !options->model.model.empty()) {
      fail_usage("give the folder once, as DIR or --model");
    }
    if (!options->folder.empty()) options->model.model = options->folder;
    const Info info = read_info(options->model);
    if (options->json) {
      print_info_json(info);
    } else {
      print_info(info);
    }
    return 0;
  };
}

}  // namespace tessera::app
