// tessera quantize: packs a dense checkpoint.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "commands.h"
#include "core/fail.h"
#include "core/wildcard.h"
#include "engine/auto_plan.h"
#include "engine/sensitivity.h"
#include "interrupt.h"
#include "model/checkpoint/input_file.h"
#include "model/checkpoint/precision_plan.h"
#include "model/checkpoint/quantize_checkpoint.h"
#include "model/checkpoint/quote.h"
#include "model/tokenizer/unicode.h"
#include "option_checks.h"
#include "progress.h"
#include "quant/codec.h"
#include "quant/format_table.h"
#include "tessera/model.h"
#include "tessera/tokenizer.h"
#include "usage_error.h"

namespace tessera::app {
namespace {

using model::Checkpoint;
using model::LayerCost;
using model::PackableLayer;
using model::QuantizedCheckpoint;
using model::QuantizedLayer;

struct QuantizeFlags {
  std::string model, format, out, plan, budget, calibration;
  std::vector<std::string> keep_dense;
  std::int64_t group = -1, calibration_tokens = 256;
  int threads = 0;
  bool zero_point = false, pack_embedding = false, force = false, json = false;

  QuantizeOptions quantize() const {
    return {.format = parse_format(format), .group = group, .zero_point = zero_point};
  }
};

// By a signal: unwinds, so that what was written is removed.
struct Stopped {};

std::function<void(std::int64_t, std::int64_t)> stoppable(Progress& bar) {
  return [&bar](std::int64_t done, std::int64_t total) {
    if (ended_by() != 0) throw Stopped{};
    bar.update(done, total);
  };
}

double megabytes(std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

std::string format_names() {
  std::string names;
  for (const FormatInfo& format : formats()) {
    names.append(names.empty() ? "" : ", ").append(format.name);
  }
  return names;
}

// Of --budget; `whole` is the size of the dense checkpoint.
std::int64_t budget_bytes(const QuantizeFlags& options, std::int64_t whole) {
  try {
    return model::parse_budget(options.budget, whole);
  } catch (const Error& error) {
    fail_usage("--budget {}: {}", options.budget, error.what());
  }
}

// What can be refused before the checkpoint is opened.
void check(const QuantizeFlags& options) {
  const auto known = [&](const FormatInfo& format) { return format.name == options.format; };
  if (std::none_of(formats().begin(), formats().end(), known)) {
    fail_usage("--format {}: choose one of {}", options.format, format_names());
  }
  const Format format = parse_format(options.format);
  if (options.group != -1 && !quant::accepts_group(format, options.group)) {
    fail_usage("--group {}: {} takes {}", options.group, options.format,
               quant::accepted_groups(format));
  }
  if (options.zero_point && format != Format::int4) {
    fail_usage("--zero-point is for int4; leave it out with --format {}", options.format);
  }
  if (options.plan.empty() != options.budget.empty()) {
    fail_usage("--plan auto and --budget go together");
  }
  if (!options.budget.empty()) budget_bytes(options, 1);
  if (options.json && model::find_invalid_utf8(options.out) != std::string::npos) {
    fail_usage("--out {}: must be UTF-8 with --json; choose another folder, or leave out --json",
               model::in_quotes(options.out));
  }
}

std::vector<PrecisionRule> keep_dense_rules(const QuantizeFlags& options,
                                            const std::vector<PackableLayer>& layers) {
  std::vector<PrecisionRule> rules;
  for (const std::string& pattern : options.keep_dense) {
    const bool matches = std::any_of(layers.begin(), layers.end(), [&](const auto& layer) {
      return wildcard_match(pattern, layer.name);
    });
    if (!matches) {
      fail_usage("--keep-dense {} matches no layer; the first is {}, the last {}", pattern,
                 model::in_quotes(layers.front().name), model::in_quotes(layers.back().name));
    }
    rules.push_back({pattern, Format::dense});
  }
  return rules;
}

// ---- --plan auto --------------------------------------------------------------------------------

std::vector<std::int32_t> calibration_ids(Context& ctx, const QuantizeFlags& options,
                                          const Model& dense) {
  if (options.calibration.empty()) {
    return self_written_text(ctx, dense, options.calibration_tokens);
  }
  // Long enough for any tokenizer: no token is longer than this many bytes on average.
  const std::int64_t most = options.calibration_tokens * 64;
  std::string text = model::read_file_start(options.calibration, most);
  if (text.empty()) fail(ErrorCode::file, "{} is empty", options.calibration);
  // The text must not end inside a UTF-8 character. All bytes of such characters are 1xxxxxxx.
  const bool is_cut = std::cmp_equal(text.size(), most);
  while (is_cut && !text.empty() && (static_cast<unsigned char>(text.back()) & 0x80u) != 0) {
    text.pop_back();
  }
  std::vector<std::int32_t> ids =
      Tokenizer::from_file(options.model).encode(text, {.add_special = true});
  ids.resize(std::min(ids.size(), static_cast<std::size_t>(options.calibration_tokens)));
  return ids;
}

// Refuses a budget that cannot be met, and names the smallest that can, in both units.
void check_budget(const QuantizeFlags& options, std::int64_t budget, std::int64_t smallest,
                  std::int64_t whole) {
  if (budget >= smallest) return;
  const double share =
      std::ceil(1000.0 * static_cast<double>(smallest) / static_cast<double>(whole)) /
      10;  // rounded up, to 0.1%
  fail_usage(
      "--budget {} is too small: the smallest that can be met is {:.1f}% or {}, with all {} "
      "packed as {}",
      options.budget, share, model::budget_text(smallest),
      options.keep_dense.empty() ? "layers" : "layers but those of --keep-dense", options.format);
}

AutoPlan make_plan(Context& ctx, const QuantizeFlags& options, const Checkpoint& checkpoint,
                   const std::vector<PrecisionRule>& fixed) {
  std::int64_t whole = 0;
  for (const model::StoredTensor& tensor : checkpoint.tensors()) {
    whole += static_cast<std::int64_t>(tensor.data.size());
  }
  Progress bar("measuring layers");
  const AutoPlanArgs args{
      .options = options.quantize(),
      .budget = budget_bytes(options, whole),
      .fixed = fixed,
      .embedding = options.pack_embedding,
      .text = [&](const Model& dense) { return calibration_ids(ctx, options, dense); },
      .progress = stoppable(bar)};
  check_budget(options, args.budget, smallest_budget(checkpoint, args), whole);
  return plan_automatically(ctx, checkpoint, args);
}

// ---- what is printed ----------------------------------------------------------------------------

double divergence_per_mb(const LayerCost& layer) {
  return layer.divergence / megabytes(layer.dense_bytes - layer.packed_bytes);
}

// In the order of the decision: the gain of a dense layer per byte.
void print_plan(const QuantizeFlags& options, const AutoPlan& plan) {
  std::vector<LayerCost> layers = plan.decided.layers;
  std::stable_sort(layers.begin(), layers.end(), [](const LayerCost& a, const LayerCost& b) {
    return divergence_per_mb(a) > divergence_per_mb(b);
  });
  std::size_t width = 5;
  for (LayerCost& layer : layers) {
    layer.layer = model::printable(layer.layer);
    width = std::max(width, layer.layer.size());
  }
  fmt::print("{:<{}}  {:>10}  {:>10}  {:>10}  {:>10}  {}\n", "layer", width, "KL, nats", "dense MB",
             "packed MB", "KL per MB", "decision");
  for (const LayerCost& layer : layers) {
    fmt::print("{:<{}}  {:>10.2e}  {:>10.3f}  {:>10.3f}  {:>10.2e}  {}\n", layer.layer, width,
               layer.divergence, megabytes(layer.dense_bytes), megabytes(layer.packed_bytes),
               divergence_per_mb(layer), layer.dense ? "dense" : "packed");
  }
  fmt::print(
      "KL: divergence from the dense model per token, each layer packed alone, over {} tokens of "
      "{}; all packed {:.2e}, this plan {:.2e}\n",
      plan.tokens, options.calibration.empty() ? "its own text" : options.calibration,
      plan.divergence_all_packed, plan.divergence);
}

nlohmann::json plan_json(const AutoPlan& plan) {
  nlohmann::json layers = nlohmann::json::array();
  for (const LayerCost& layer : plan.decided.layers) {
    layers.push_back({{"name", layer.layer},
                      {"divergence", layer.divergence},
                      {"dense_bytes", layer.dense_bytes},
                      {"packed_bytes", layer.packed_bytes},
                      {"decision", layer.dense ? "dense" : "packed"}});
  }
  return {{"layers", layers},
          {"tokens", plan.tokens},
          {"divergence_all_packed", plan.divergence_all_packed},
          {"divergence", plan.divergence}};
}

struct Outcome {
  QuantizedCheckpoint result;
  std::optional<AutoPlan> plan;
  double seconds = 0;

  std::int64_t packed() const {
    return std::count_if(result.layers.begin(), result.layers.end(),
                         [](const QuantizedLayer& layer) { return layer.packed; });
  }
  // Over the packed layers, each counted by its size.
  double mean_error() const {
    double sum = 0, bytes = 0;
    for (const QuantizedLayer& layer : result.layers) {
      if (!layer.packed) continue;
      sum += layer.relative_error * static_cast<double>(layer.dense_bytes);
      bytes += static_cast<double>(layer.dense_bytes);
    }
    return sum / bytes;
  }
};

void print_outcome_json(const QuantizeFlags& options, const Outcome& outcome) {
  nlohmann::json layers = nlohmann::json::array();
  for (const QuantizedLayer& layer : outcome.result.layers) {
    layers.push_back({{"name", layer.name},
                      {"packed", layer.packed},
                      {"dense_bytes", layer.dense_bytes},
                      {"stored_bytes", layer.stored_bytes},
                      {"relative_error", layer.relative_error}});
  }
  const nlohmann::json object = {
      {"format", options.format},
      {"out", options.out},
      {"layers", layers},
      {"packed_layers", outcome.packed()},
      {"bytes_before", outcome.result.bytes_before},
      {"bytes_after", outcome.result.bytes_after},
      {"mean_relative_error", outcome.mean_error()},
      {"plan", outcome.plan ? plan_json(*outcome.plan) : nlohmann::json(nullptr)},
      {"seconds", outcome.seconds}};
  fmt::print("{}\n", object.dump(2));
}

void print_summary(const QuantizeFlags& options, const Outcome& outcome) {
  const QuantizedCheckpoint& result = outcome.result;
  fmt::print(
      "{}: {} of {} layers packed as {}, {:.2f} MB -> {:.2f} MB ({:.0f}%), mean weight error "
      "{:.2f}%, {:.1f} s\n",
      options.out, outcome.packed(), result.layers.size(), options.format,
      megabytes(result.bytes_before), megabytes(result.bytes_after),
      100 * megabytes(result.bytes_after) / megabytes(result.bytes_before),
      100 * outcome.mean_error(), outcome.seconds);
}

Outcome quantize_model(QuantizeFlags options) {
  const auto start = std::chrono::steady_clock::now();
  Context ctx({.threads = options.threads});
  const auto checkpoint = Checkpoint::open(options.model);
  read_model_config(options.model);  // refuses a model that Tessera could not run
  const std::vector<PackableLayer> layers = packable_layers(*checkpoint);
  if (layers.empty()) fail(ErrorCode::file, "{} has no matrices to pack", options.model);
  options.group = with_fitting_group(options.quantize(), layers).group;
  std::vector<PrecisionRule> rules = keep_dense_rules(options, layers);
  Outcome outcome;
  if (!options.plan.empty()) {
    outcome.plan = make_plan(ctx, options, *checkpoint, rules);
    const auto& decided = outcome.plan->decided.plan.rules;
    rules.insert(rules.end(), decided.begin(), decided.end());
    if (!options.json) print_plan(options, *outcome.plan);
  }
  Progress bar("packing");
  outcome.result =
      quantize_checkpoint(ctx, *checkpoint,
                          {.out = options.out,
                           .options = options.quantize(),
                           .plan = {.rules = rules, .otherwise = parse_format(options.format)},
                           .embedding = options.pack_embedding,
                           .force = options.force,
                           .progress = stoppable(bar)});
  const auto end = std::chrono::steady_clock::now();
  outcome.seconds = std::chrono::duration<double>(end - start).count();
  return outcome;
}

int quantize_command(const QuantizeFlags& options) {
  check(options);
  catch_endings();
  try {
    const Outcome outcome = quantize_model(options);
    options.json ? print_outcome_json(options, outcome) : print_summary(options, outcome);
    return 0;
  } catch (const Stopped&) {
    fmt::print(stderr, "tessera: stopped; {} was not written\n", options.out);
    return 128 + ended_by();
  }
}

}  // namespace

Command add_quantize(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "quantize", "Pack the linear layers of a checkpoint, the head included, and write a new one");
  const auto options = std::make_shared<QuantizeFlags>();
  command->add_option("--model", options->model, "Folder of the dense checkpoint")
      ->type_name("DIR")
      ->required();
  command->add_option("--format", options->format, "One of " + format_names())
      ->type_name("FORMAT")
      ->required();
  command->add_option("--out", options->out, "Folder to write, new or empty")
      ->type_name("DIR")
      ->required();
  command
      ->add_option(
          "--group", options->group,
          "Weights that share a scale. int4: 0 (a row) or a multiple of 16, by default the "
          "largest of 128, 64, 32 that divides all rows; int8: 0 (default) or any; others: "
          "their own")
      ->check(whole_number(0));
  command->add_flag("--zero-point", options->zero_point,
                    "int4: fit codes to the smallest and largest weight of a group");
  command
      ->add_option("--keep-dense", options->keep_dense,
                   "Layers to leave dense; * stands for anything (repeatable)")
      ->type_name("PATTERN")
      ->allow_extra_args(false);
  command->add_flag("--pack-embedding", options->pack_embedding,
                    "Also pack the token embedding, and a head that is tied to it; both stay dense "
                    "by default");
  command
      ->add_option("--plan", options->plan,
                   "auto: measure every layer, keep the most sensitive dense within --budget")
      ->check(one_of({"auto"}));
  command
      ->add_option("--budget", options->budget,
                   "Largest size of the new checkpoint: 60% of the dense one, or 300MB")
      ->type_name("SIZE");
  command
      ->add_option("--calibration", options->calibration,
                   "Text to measure layers on (default: text that the model writes itself)")
      ->type_name("FILE")
      ->needs(command->get_option("--plan"));
  command
      ->add_option("--calibration-tokens", options->calibration_tokens,
                   "Tokens to measure layers on (default 256)")
      ->check(whole_number(1, 1 << 20))
      ->needs(command->get_option("--plan"));
  command->add_option("--threads", options->threads, "CPU threads; 0: all that the process may use")
      ->check(whole_number(0, 1024));
  command->add_flag("--force", options->force, "Write into a folder that is not empty");
  command->add_flag("--json", options->json, "Print one JSON object");
  const auto of_others = [](const quant::FormatEntry& format) {
    return !format.stored.empty() && format.stored.front().method != "tessera";
  };
  const auto of_tessera = [](const quant::FormatEntry& format) {
    return !format.stored.empty() && format.stored.front().method == "tessera";
  };
  command->footer(
      quant::names_of(of_others) +
      " are written as compressed-tensors checkpoints, which other\nprograms load; " +
      quant::names_of(of_tessera) +
      " is Tessera's own. Norms, biases and the embedding stay dense.\n\n"
      "Examples:\n"
      "  tessera quantize --model pythia-160m --format nvfp4 --out pythia-160m-nvfp4\n"
      "  tessera quantize --model m --format int4 --group 64 --keep-dense lm_head --out m-int4\n"
      "  tessera quantize --model m --format nvfp4 --plan auto --budget 40% --out m-mixed");
  return [options] { return quantize_command(*options); };
}

}  // namespace tessera::app
