// tessera profile: where a token's time goes, and what is worth optimising.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "model/architectures/registry.h"
#include "model_options.h"
#include "option_checks.h"
#include "output.h"
#include "profile/engine_run.h"
#include "profile/fusion.h"
#include "profile/gpu_watch.h"
#include "profile_report.h"
#include "report_about.h"
#include "report_file.h"

namespace tessera::app {
namespace {

using profile::EngineRun;
using profile::PhaseRun;

struct ProfileFlags {
  ModelOptions model;
  std::int64_t prompt_len = 256, gen_len = 128;
  int repeat = 5;
  std::string html, plots;
  bool json = false, fusion = false;
};

// A phase's calls for one step of it: for a prompt, or for one token.
std::vector<TraceEntry> per_step(std::vector<TraceEntry> entries, std::int64_t steps) {
  const auto n = static_cast<double>(std::max<std::int64_t>(steps, 1));
  const auto divided = [n](std::int64_t amount) {
    return static_cast<std::int64_t>(std::llround(static_cast<double>(amount) / n));
  };
  for (TraceEntry& entry : entries) {
    entry.calls = std::max<std::int64_t>(divided(entry.calls), 1);
    entry.seconds /= n;
    entry.bytes = divided(entry.bytes);
    entry.flops = divided(entry.flops);
  }
  return entries;
}

// What a step reads: weights, keys and values. It decides which memory the step reads from.
std::int64_t bytes_of(const std::vector<TraceEntry>& entries) {
  std::int64_t bytes = 0;
  for (const TraceEntry& entry : entries) bytes += entry.bytes;
  return std::min(bytes, profile::kAllOfMemory);
}

void add_layers(ProfilePhase& phase, const std::vector<TraceEntry>& entries, std::int64_t layers) {
  for (const TraceEntry& entry : entries) {
    if (std::find(phase.layer_ops.begin(), phase.layer_ops.end(), entry.op) ==
        phase.layer_ops.end()) {
      phase.layer_ops.push_back(entry.op);
    }
  }
  for (std::int64_t layer = 0; layer <= layers; ++layer) {
    const bool outside = layer == layers;
    LayerTime time{.layer = outside ? "outside" : std::to_string(layer), .ms = {}};
    for (const std::string& op : phase.layer_ops) {
      double ms = 0;
      for (const TraceEntry& entry : entries) {
        const bool here = entry.layer == (outside ? TraceEntry::kNoLayer : layer);
        if (here && entry.op == op) ms += 1e3 * entry.seconds;
      }
      time.ms.push_back(ms);
    }
    phase.layers.push_back(std::move(time));
  }
}

struct PhaseQuestion {
  std::string name, unit;
  PhaseRun EngineRun::*phase;
};

class Profiler {
 public:
  Profiler(const Session& session, const ProfileFlags& flags)
      : ctx_(*session.ctx), model_(*session.model), flags_(flags) {
    const profile::EngineRunOptions plain{.prompt_tokens = flags.prompt_len,
                                          .decode_tokens = flags.gen_len};
    profile::EngineRunOptions traced = plain;
    traced.trace = traced.separate_layers = true;
    memory_bandwidth_ = profile::measure_read_bandwidth(ctx_);
    plain_ = repeat_engine(ctx_, model_, plain, flags.repeat);
    traced_ = repeat_engine(ctx_, model_, traced, flags.repeat);
  }

  double memory_bandwidth() const { return memory_bandwidth_; }

  ProfilePhase phase(const PhaseQuestion& question) {
    const PhaseRun& traced = median_phase(traced_, question.phase);
    const PhaseRun& plain = median_phase(plain_, question.phase);
    const auto n = static_cast<double>(std::max<std::int64_t>(traced.steps, 1));
    // A prompt may take several steps: it is one thing nevertheless.
    const bool whole = question.phase == &EngineRun::prefill;
    const std::vector<TraceEntry> entries =
        whole ? traced.entries : per_step(traced.entries, traced.steps);
    ProfilePhase result{.name = question.name,
                        .unit = question.unit,
                        .tokens = whole ? traced.tokens : 1,
                        .breakdown = {},
                        .ceilings = ceilings_for(bytes_of(per_step(traced.entries, traced.steps))),
                        .untraced_ms = 1e3 * plain.seconds / (whole ? 1 : n),
                        .layer_ops = {},
                        .layers = {}};
    result.breakdown = break_down(entries, traced.seconds / (whole ? 1 : n), result.ceilings,
                                  promised(whole ? traced.tokens : 1, traced.fuses_layers, whole));
    add_layers(result, entries, model_.config().layers);
    return result;
  }

 private:
  // The calls of a step of this many tokens. A longer prompt takes several steps, which have every
  // op of this list among them. The CPU reads a short one like a long one (CacheBatch::Part).
  std::vector<model::StepCalls> promised(std::int64_t tokens, bool fuses_layers,
                                         bool is_prompt) const {
    const ModelConfig& config = model_.config();
    const model::StepKind kind =
        is_prompt && ctx_.device().is_cpu()
            ? model::StepKind::prompt
            : model::step_kind(tokens,
                               {.layers = fuses_layers, .embedding = model_.fuses_embedding()});
    return model::find_architecture(config).promised_calls(config, kind);
  }
  profile::Ceilings ceilings_for(std::int64_t bytes) {
    profile::Ceilings ceilings = profile::measure_ceilings(ctx_, bytes);
    ceilings.read_bandwidth = std::max(ceilings.read_bandwidth, memory_bandwidth_);
    return ceilings;
  }

  Context& ctx_;
  const Model& model_;
  const ProfileFlags& flags_;
  double memory_bandwidth_ = 0;
  std::vector<EngineRun> plain_, traced_;
};

void write_plots(const std::string& folder, const ProfileReport& report) {
  for (const ProfilePhase* phase : {&report.prefill, &report.decode}) {
    write_report_file(folder + "/" + phase->name + "_roofline.svg", profile_roofline(*phase));
    write_report_file(folder + "/" + phase->name + "_shares.svg", profile_shares(*phase));
  }
}

int run_profile(const ProfileFlags& flags) {
  check_report_file("--html", flags.html, ".html");
  check_report_folder("--plots", flags.plots);
  ModelOptions model = flags.model;
  // Events around ops see nothing of a recorded step. CUPTI does.
  if (!profile::KernelWatch::names_kernels()) model.no_graphs = true;
  const Session session = open_session(model);
  Profiler profiler(session, flags);
  ProfileReport report{.model = session.directory.filename().string(),
                       .architecture = std::string(session.model->config().architecture),
                       .device = to_string(session.ctx->device()),
                       .device_name = device_name(session.ctx->device()),
                       .dtype = std::string(name(session.model->dtype())),
                       .weights = weight_formats_of(*session.model),
                       .date = today(),
                       .version = version_text(),
                       .threads = session.ctx->threads(),
                       .memory_bandwidth = profiler.memory_bandwidth(),
                       .prompt_len = flags.prompt_len,
                       .gen_len = flags.gen_len,
                       .notes = session.notes,
                       .prefill = {},
                       .decode = {},
                       .fusion = {}};
  report.prefill = profiler.phase({.name = "prefill",
                                   .unit = fmt::format("a prompt of {} tokens", flags.prompt_len),
                                   .phase = &EngineRun::prefill});
  report.decode =
      profiler.phase({.name = "decode", .unit = "one token", .phase = &EngineRun::decode});
  if (flags.fusion) {
    report.fusion = profile::measure_fusion(
        *session.ctx, *session.model,
        {.prompt_tokens = flags.prompt_len, .decode_tokens = flags.gen_len}, flags.repeat);
  }
  if (!flags.html.empty()) write_report_file(flags.html, profile_html(report));
  if (!flags.plots.empty()) write_plots(flags.plots, report);
  write_out(flags.json ? profile_json(report).dump(2, ' ', false,
                                                   nlohmann::json::error_handler_t::replace) +
                             "\n"
                       : profile_text(report));
  return 0;
}

}  // namespace

Command add_profile(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("profile", "Show where a token's time goes, and what is worth optimising");
  const auto flags = std::make_shared<ProfileFlags>();
  command->add_option("--prompt-len", flags->prompt_len, "Tokens of the prompt")
      ->check(whole_number(1))
      ->capture_default_str();
  command->add_option("--gen-len", flags->gen_len, "Tokens to generate after it")
      ->check(whole_number(1))
      ->capture_default_str();
  command->add_option("--repeat", flags->repeat, "Runs; the median counts")
      ->check(whole_number(1, 1000))
      ->capture_default_str();
  command->add_flag("--fusion-gain", flags->fusion,
                    "Also compare what a fusion should gain with what it gains (CPU, f32)");
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->add_option("--html", flags->html, "Also write a page with plots")->type_name("FILE");
  command->add_option("--plots", flags->plots, "Also write the page's plots as SVG files")
      ->type_name("DIR");
  add_model_options(*command, flags->model);
  command->footer(
      "One request runs through the engine's own steps, with tracing off and on. A floor is bytes\n"
      "over measured bandwidth, or flops over measured rate, whichever takes longer. max gain is\n"
      "how much faster the run gets if the op runs at its floor; if free, if it took no time.\n"
      "An op is worth optimising if it takes 10% of the time, or could gain 15%. gaps is\n"
      "the time that no op accounts for. Times of decode are for one token.\n"
      "Examples:\n"
      "  tessera profile                                 the bundled model\n"
      "  tessera profile --model DIR --weights int4 --prompt-len 512 --gen-len 64\n"
      "  tessera profile --model DIR --json | jq '.decode.rows[].advice'\n"
      "  tessera profile --model DIR --html profile.html");
  return [flags] { return run_profile(*flags); };
}

}  // namespace tessera::app
