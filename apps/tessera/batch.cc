// tessera batch: a file of requests in, a file of results out; resumes where it stopped.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "batch_run.h"
#include "chat_template_option.h"
#include "commands.h"
#include "engine_setup.h"
#include "generation_flags.h"
#include "help_format.h"
#include "interrupt.h"
#include "option_checks.h"
#include "output.h"
#include "run_summary.h"
#include "trained_length.h"
#include "usage_error.h"

namespace tessera::app {
namespace {

constexpr std::int64_t kMostConcurrent = 4096;
constexpr std::int64_t kConcurrentOnGpu = 32, kConcurrentOnCpu = 8;

struct BatchFlags {
  ModelOptions model;
  GenerationFlags generation;
  EngineFlags engine;
  std::string input, output, template_name;
  std::int64_t concurrency = 0;  // 0: by the device
  bool json = false;
};

// The summary, also of a run with nothing to do.
struct BatchReport {
  BatchCounts counts;
  std::int64_t requests = 0;
  EngineStats stats{};
  double seconds = 0;

  std::int64_t left() const { return requests - counts.skipped - counts.answered - counts.errors; }
  double tokens_per_s() const {
    return seconds > 0 ? static_cast<double>(stats.generated_tokens) / seconds : 0;
  }
};

void check_batch_files(const BatchFlags& options) {
  std::error_code ignored;
  if (std::filesystem::equivalent(options.input, options.output, ignored)) {
    fail_usage("--input and --output are the same file, {}; give another --output", options.input);
  }
}

nlohmann::json report_json(const BatchReport& report) {
  return {{"requests", report.requests},
          {"answered", report.counts.answered},
          {"errors", report.counts.errors},
          {"skipped", report.counts.skipped},
          {"left", report.left()},
          {"interrupted", report.counts.interrupted},
          {"prompt_tokens", report.stats.prompt_tokens},
          {"cached_tokens", report.stats.cached_tokens},
          {"generated_tokens", report.stats.generated_tokens},
          {"preemptions", report.stats.preemptions},
          {"seconds", report.seconds},
          {"tokens_per_s", report.tokens_per_s()}};
}

void print_report(const BatchReport& report) {
  const BatchCounts& counts = report.counts;
  fmt::print(stderr,
             "{} requests: {} answered, {} errors, {} skipped (done before); {} tokens in, {} out "
             "in {:.1f} s, {:.1f}/s\n",
             report.requests, counts.answered, counts.errors, counts.skipped,
             report.stats.prompt_tokens, report.stats.generated_tokens, report.seconds,
             report.tokens_per_s());
  if (counts.has_more) {
    fmt::print(stderr, "the input has become longer; run the same command again for the rest\n");
  }
  if (counts.interrupted) {
    fmt::print(stderr, "interrupted with {} left; run the same command again to continue\n",
               report.left());
  }
}

void print_batch_json(const nlohmann::json& json) {
  write_out(json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

std::int64_t concurrency_of(const BatchFlags& options, const Context& ctx) {
  if (options.concurrency > 0) return options.concurrency;
  return ctx.device().is_cpu() ? kConcurrentOnCpu : kConcurrentOnGpu;
}

int run_with_model(const BatchFlags& options, const GenerateOptions& defaults, InputIndex& index,
                   ResultsFile& results) {
  Session session = open_session(options.model);
  const ModelConfig& config = session.model->config();
  const CachePolicy policy = cache_policy(options.model, config);
  const std::int64_t context = full_context(options.model, config);
  note_trained_length(session, policy, context);
  const std::unique_ptr<Model> draft = load_draft(session, options.model, options.engine);
  const RequestReader reader(session, defaults, policy, options.template_name);
  const std::int64_t concurrency = concurrency_of(options, *session.ctx);
  const auto start = std::chrono::steady_clock::now();
  EngineOptions engine =
      engine_options(options.engine, options.model, draft.get(), policy, context, concurrency);
  engine.warm_up = !session.ctx->device().is_cpu();
  BatchRun run(session, engine, reader, options.input, index, results);
  BatchReport report{.counts = run.run(), .requests = index.requests()};
  report.stats = run.engine().stats();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const bool speculates = options.engine.kind() != SpeculationOptions::Kind::off;
  const CacheFacts cache = facts_of(run.engine(), *session.model, policy);
  if (options.json) {
    nlohmann::json json = session_json(session, cache);
    json.update(report_json(report));
    json["concurrency"] = concurrency;
    if (speculates) json["speculation"] = speculation_json(options.engine, report.stats);
    print_batch_json(json);
  }
  print_report(report);
  if (speculates) fmt::print(stderr, "{}\n", speculation_text(options.engine, report.stats));
  fmt::print(stderr, "{}\n", memory_text(session, cache));
  return report.counts.interrupted ? 128 + ended_by() : 0;
}

int run_batch(const BatchFlags& options) {
  check_cache_options(options.model);
  check_engine_flags(options.engine);
  check_batch_files(options);
  const GenerateOptions defaults = options.generation.parsed();
  InputIndex index(options.input);
  ResultsFile results(options.output, index);
  catch_endings();
  if (index.done() < index.requests()) return run_with_model(options, defaults, index, results);
  // Nothing is left to do, so no model is loaded.
  BatchReport report{.counts = {.skipped = index.done()}, .requests = index.requests()};
  if (options.json) print_batch_json(report_json(report));
  print_report(report);
  return 0;
}

}  // namespace

Command add_batch(CLI::App& app) {
  CLI::App* command = app.add_subcommand("batch", "Answer a file of requests, many at a time");
  const auto options = std::make_shared<BatchFlags>();
  command
      ->add_option(
          "--input", options->input,
          "Requests, one JSON object per line: {\"custom_id\": \"a\", \"prompt\": \"Once\"}; "
          "instead of prompt: prompt_ids or messages; max_tokens, temperature, seed, stop, "
          "n, ... override the flags below")
      ->type_name("FILE")
      ->required();
  command
      ->add_option(
          "--output", options->output,
          "Results, one JSON object per line, in the order in which requests end; requests "
          "that already have a result are skipped")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("--concurrency", options->concurrency,
                   "Sequences that run at the same time; by default 32 on a GPU, 8 on the CPU")
      ->check(whole_number(1, kMostConcurrent));
  add_generation_flags(*command, options->generation);
  add_chat_template_option(*command, options->template_name);
  command->add_flag("--json", options->json, "Print the summary as a JSON object");
  under_heading(*command, "Sampling",
                [&] { add_sampling_flags(*command, options->generation.sampling); });
  under_heading(*command, "Speed", [&] { add_engine_flags(*command, options->engine); });
  add_cache_options(*command, options->model);
  add_model_options(*command, options->model);
  command->footer(
      "If it is killed, run it again: it continues where it stopped.\n"
      "\n"
      "Examples:\n"
      "  tessera batch --input requests.jsonl --output results.jsonl\n"
      "  tessera batch --model pythia-160m --weights int4 --concurrency 16 --greedy "
      "--input requests.jsonl --output results.jsonl\n"
      "  tessera batch --input requests.jsonl --output results.jsonl --json | jq .errors");
  return [options] { return run_batch(*options); };
}

}  // namespace tessera::app
