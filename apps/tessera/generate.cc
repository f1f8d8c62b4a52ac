// tessera generate: a prompt in, text out, as it comes.
#include "tessera/generate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "answers.h"
#include "commands.h"
#include "core/fail.h"
#include "engine_setup.h"
#include "generate_choices.h"
#include "generation_flags.h"
#include "help_format.h"
#include "interrupt.h"
#include "model_options.h"
#include "option_checks.h"
#include "output.h"
#include "parallel_run.h"
#include "prompt.h"
#include "run_summary.h"
#include "trained_length.h"
#include "usage_error.h"

namespace tessera::app {
namespace {

constexpr std::int64_t kMostAnswers = 256;
constexpr std::int64_t kStepTokens = 256;  // of a prompt that one step takes

struct GenerateFlags {
  ModelOptions model;
  GenerationFlags generation;
  EngineFlags engine;
  std::optional<std::string> prompt, prompt_ids, prompt_file;
  std::int64_t n = 1;
  bool json = false, echo = false;
};

struct Prompt {
  std::string text;  // empty where ids were given
  std::vector<std::int32_t> ids;
  bool from_ids = false;
};

// What the command line says of the prompt; a model is not needed yet.
Prompt read_prompt(const GenerateFlags& options) {
  const int given =
      options.prompt.has_value() + options.prompt_ids.has_value() + options.prompt_file.has_value();
  if (given != 1) {
    fail_usage("{} prompt: give exactly one of PROMPT, --prompt-ids and --prompt-file",
               given == 0 ? "there is no" : "there is more than one");
  }
  Prompt prompt;
  if (options.prompt_ids) {
    prompt.from_ids = true;
    prompt.ids = parse_ids(*options.prompt_ids);
    return prompt;
  }
  prompt.text = options.prompt ? *options.prompt : read_text_file(*options.prompt_file);
  // Editors and echo end a file with a newline that is not meant as a part of the prompt.
  if (options.prompt_file && prompt.text.ends_with('\n')) prompt.text.pop_back();
  return prompt;
}

void encode_prompt(const Session& session, Prompt& prompt) {
  if (prompt.from_ids) return;
  const Tokenizer& tokenizer = session.need_tokenizer("give --prompt-ids instead");
  prompt.ids =
      PromptEncoder(tokenizer, session.model->config(), session.directory).encode(prompt.text);
  if (prompt.ids.empty()) {
    fail(
        ErrorCode::invalid_argument,
        "the prompt is empty; it needs at least one token, and this model's tokenizer adds none of "
        "its own");
  }
}

// Tokens of a full cache of this run: room for prompt and text, and no more.
std::int64_t context_of(const Session& session, const GenerateFlags& options,
                        const CachePolicy& policy, std::int64_t prompt_tokens) {
  const ModelConfig& config = session.model->config();
  const std::int64_t context = full_context(options.model, config);
  if (policy.kind != CachePolicy::Kind::full) return context;
  if (prompt_tokens > context) {
    fail(ErrorCode::invalid_argument,
         "the prompt has {} tokens and the cache holds at most {}{}; shorten it, or {}",
         prompt_tokens, context,
         options.model.context > 0 ? "" : ", the length the model was trained for",
         streaming_advice(config));
  }
  const std::int64_t max_tokens = options.generation.max_tokens;
  return max_tokens > 0 ? std::min(context, prompt_tokens + max_tokens) : context;
}

void print_generated_json(const Session& session, const KvCache& cache, const Prompt& prompt,
                          const GenerateResult& result, bool logprobs) {
  const Timing timing = timing_of(result);
  nlohmann::json json = session_json(session, cache);
  json["prompt_ids"] = prompt.ids;
  json["token_ids"] = result.ids;
  json["text"] = result.text;
  json["stop_reason"] = name(result.reason);
  json["ttft_ms"] = timing.ttft_ms;
  json["tpot_ms"] = timing.tpot_ms;
  json["tokens_per_s"] = timing.tokens_per_s;
  json["prefill_ms"] = 1e3 * result.prefill_seconds;
  if (logprobs) {
    json["logprobs"] = logprobs_json(result, session.tokenizer ? &*session.tokenizer : nullptr);
  }
  // Text is valid UTF-8; a path on the disk need not be.
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

void print_logprobs(const GenerateResult& result, const Tokenizer* tokenizer) {
  for (const auto& token : logprobs_json(result, tokenizer)) {
    fmt::print("{}\n", token.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
}

// Writes the text as it comes.
class TextWriter {
 public:
  // `prompt`: printed before the first token; empty: not printed.
  TextWriter(const Tokenizer* tokenizer, std::string prompt)
      : tokenizer_(tokenizer), prompt_(std::move(prompt)) {}

  void write(const GeneratedToken& token) {
    // Without a tokenizer the ids are the text.
    const std::string text =
        tokenizer_ != nullptr ? token.text : fmt::format("{} ", token.sampled.token.id);
    write_out(prompt_ + text);
    prompt_.clear();
  }

 private:
  const Tokenizer* tokenizer_;
  std::string prompt_;
};

int run_plain(Session& session, const GenerateFlags& options, const Prompt& prompt,
              const std::string& echo, GenerateOptions generation) {
  const ModelConfig& config = session.model->config();
  const CachePolicy policy = cache_policy(options.model, config);
  KvCache cache = session.model->make_cache(
      *session.ctx, policy, context_of(session, options, policy, std::ssize(prompt.ids)),
      prompt_step(options.model, kStepTokens), /*logit_rows=*/1, cache_dtype(options.model));
  note_trained_length(session, policy, full_context(options.model, config));
  generation.cancel = &catch_interrupt();
  const Tokenizer* tokenizer = session.tokenizer ? &*session.tokenizer : nullptr;
  TextWriter writer(tokenizer, echo);
  const GenerateResult result = generate(*session.ctx, *session.model, cache, tokenizer, prompt.ids,
                                         generation, [&](const GeneratedToken& token) {
                                           if (!options.json) writer.write(token);
                                         });
  if (!options.json) write_out("\n");
  if (result.reason == StopReason::context_full) {
    session.note(fmt::format("the context of {} tokens is full; {}", cache.options().max_tokens,
                             streaming_advice(config)));
  }
  const bool logprobs = options.generation.logprobs >= 0;
  if (options.json) {
    print_generated_json(session, cache, prompt, result, logprobs);
  } else if (logprobs) {
    print_logprobs(result, tokenizer);
  }
  flush_out();
  fmt::print(stderr, "{}\n", summary_text(session, cache, result));
  return result.reason == StopReason::cancelled ? kInterruptedStatus : 0;
}

int run_generate(const GenerateFlags& options) {
  Prompt prompt = read_prompt(options);
  check_cache_options(options.model);
  check_engine_flags(options.engine);
  const GenerateOptions generation = options.generation.parsed();
  Session session = open_session(options.model);
  encode_prompt(session, prompt);
  const bool is_echoed = !prompt.from_ids && (options.echo || isatty(STDOUT_FILENO) == 1);
  const std::string echo = is_echoed ? prompt.text : "";
  if (options.n == 1 && !options.engine.any()) {
    return run_plain(session, options, prompt, echo, generation);
  }
  const ModelConfig& config = session.model->config();
  const CachePolicy policy = cache_policy(options.model, config);
  const std::int64_t context = context_of(session, options, policy, std::ssize(prompt.ids));
  note_trained_length(session, policy, full_context(options.model, config));
  return run_choices(session, options.model, options.engine,
                     {.prompt_ids = prompt.ids,
                      .echo = echo,
                      .n = options.n,
                      .context = context,
                      .policy = policy,
                      .generation = generation,
                      .json = options.json});
}

}  // namespace

Command add_generate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "Continue a prompt");
  const auto options = std::make_shared<GenerateFlags>();
  command->add_option("PROMPT,--prompt", options->prompt, "The text to continue");
  command->add_option("--prompt-ids", options->prompt_ids, "Token ids instead of a text: 1,2,3")
      ->type_name("IDS");
  command
      ->add_option("--prompt-file", options->prompt_file,
                   "Read the prompt from a file (- is standard input), without its last newline")
      ->type_name("FILE");
  command
      ->add_option("-n,--answers", options->n,
                   "Write N answers to the prompt; answer i draws with the seed --seed + i - 1")
      ->check(whole_number(1, kMostAnswers))
      ->capture_default_str();
  add_generation_flags(*command, options->generation);
  command->add_flag("--echo", options->echo, "Print the prompt first, as on a terminal");
  command->add_flag("--json", options->json, "Print one JSON object at the end");
  under_heading(*command, "Sampling",
                [&] { add_sampling_flags(*command, options->generation.sampling); });
  under_heading(*command, "Speed", [&] { add_engine_flags(*command, options->engine); });
  add_cache_options(*command, options->model);
  add_model_options(*command, options->model);
  command->footer(
      "Examples:\n"
      "  tessera generate \"Once upon a time\"\n"
      "  tessera generate --model pythia-160m --weights int4 --greedy \"The capital of France "
      "is\"\n"
      "  tessera generate -n 4 --max-tokens 60 \"Once upon a time\"\n"
      "  tessera generate --model pythia-1b --draft pythia-70m --greedy \"The sea\"\n"
      "  tessera generate --attention-sinks 4 --max-tokens -1 --ignore-eos \"Once upon a time\"\n"
      "  tessera generate --prompt-ids 1,2,3 --max-tokens 8 --json | jq .token_ids");
  add_parallel_option(*command, options->model);
  return led_by_rank_0(options->model, [options] { return run_generate(*options); });
}

}  // namespace tessera::app
