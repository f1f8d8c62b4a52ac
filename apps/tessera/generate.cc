// tessera generate: a prompt in, text out, as it comes.
#include "tessera/generate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "commands.h"
#include "core/fail.h"
#include "help_format.h"
#include "interrupt.h"
#include "model_options.h"
#include "option_checks.h"
#include "output.h"
#include "prompt.h"
#include "run_summary.h"
#include "sampling_flags.h"
#include "trained_length.h"
#include "usage_error.h"

namespace tessera::app {
namespace {

struct GenerateFlags {
  ModelOptions model;
  SamplingFlags sampling;
  std::optional<std::string> prompt, prompt_ids, prompt_file;
  std::int64_t max_tokens = 256;
  std::int64_t logprobs = -1;
  bool ignore_eos = false, json = false, echo = false;
  std::vector<std::string> stop;
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

// The cache of this run. A full one has room for prompt and text, and no more.
KvCache make_generate_cache(Session& session, const GenerateFlags& options,
                            std::int64_t prompt_tokens) {
  const ModelConfig& config = session.model->config();
  const CachePolicy policy = cache_policy(options.model, config);
  const std::int64_t asked = full_context(options.model, config);
  std::int64_t context = asked;
  if (policy.kind == CachePolicy::Kind::full) {
    if (prompt_tokens > context) {
      fail(ErrorCode::invalid_argument,
           "the prompt has {} tokens and the cache holds at most {}{}; shorten it, or {}",
           prompt_tokens, context,
           options.model.context > 0 ? "" : ", the length the model was trained for",
           streaming_advice(config));
    }
    if (options.max_tokens > 0) context = std::min(context, prompt_tokens + options.max_tokens);
  }
  KvCache cache = session.model->make_cache(*session.ctx, policy, context);
  note_trained_length(session, policy, asked);
  return cache;
}

nlohmann::json logprobs_json(const GenerateResult& result, const Tokenizer* tokenizer) {
  const auto one = [&](const TokenLogprob& token) {
    nlohmann::json json = {{"id", token.id}, {"logprob", token.logprob}};
    const bool known = tokenizer != nullptr && token.id < tokenizer->vocab_size();
    if (known) json["token"] = tokenizer->token(token.id);
    return json;
  };
  nlohmann::json list = nlohmann::json::array();
  for (const Sampled& sampled : result.sampled) {
    nlohmann::json entry = one(sampled.token);
    entry["top"] = nlohmann::json::array();
    for (const TokenLogprob& token : sampled.top) entry["top"].push_back(one(token));
    list.push_back(entry);
  }
  return list;
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

GenerateOptions generate_options(const GenerateFlags& options) {
  if (options.max_tokens == 0) fail_usage("--max-tokens 0 writes nothing; -1 sets no limit");
  const SamplingOptions sampling = options.sampling.parsed();
  check_sampling(sampling);
  return {.max_tokens = options.max_tokens,
          .ignore_eos = options.ignore_eos,
          .stop = options.stop,
          .sampling = sampling,
          .top_logprobs = options.logprobs};
}

int run_generate(const GenerateFlags& options) {
  Prompt prompt = read_prompt(options);
  check_cache_options(options.model);
  GenerateOptions generation = generate_options(options);
  Session session = open_session(options.model);
  encode_prompt(session, prompt);
  KvCache cache =
      make_generate_cache(session, options, static_cast<std::int64_t>(prompt.ids.size()));
  generation.cancel = &catch_interrupt();
  const bool echo = !prompt.from_ids && (options.echo || isatty(STDOUT_FILENO) == 1);
  const Tokenizer* tokenizer = session.tokenizer ? &*session.tokenizer : nullptr;
  TextWriter writer(tokenizer, echo ? prompt.text : "");
  const GenerateResult result = generate(*session.ctx, *session.model, cache, tokenizer, prompt.ids,
                                         generation, [&](const GeneratedToken& token) {
                                           if (!options.json) writer.write(token);
                                         });
  if (!options.json) write_out("\n");
  if (result.reason == StopReason::context_full) {
    session.note(fmt::format("the context of {} tokens is full; {}", cache.options().max_tokens,
                             streaming_advice(session.model->config())));
  }
  if (options.json) {
    print_generated_json(session, cache, prompt, result, options.logprobs >= 0);
  } else if (options.logprobs >= 0) {
    print_logprobs(result, tokenizer);
  }
  flush_out();
  fmt::print(stderr, "{}\n", summary_text(session, cache, result));
  return result.reason == StopReason::cancelled ? kInterruptedStatus : 0;
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
      ->add_option("--max-tokens", options->max_tokens,
                   "End after N tokens; -1: only at an end token, a stop text or Ctrl-C")
      ->check(whole_number(-1))
      ->capture_default_str();
  command->add_flag("--ignore-eos", options->ignore_eos, "Continue after an end token");
  command->add_option("--stop", options->stop, "End before this text; repeatable")
      ->allow_extra_args(false)
      ->check(not_empty());
  command
      ->add_option("--logprobs", options->logprobs,
                   "Report each token's log probability and the N most likely tokens")
      ->check(whole_number(0, 1000));
  command->add_flag("--echo", options->echo, "Print the prompt first, as on a terminal");
  command->add_flag("--json", options->json, "Print one JSON object at the end");
  under_heading(*command, "Sampling", [&] { add_sampling_flags(*command, options->sampling); });
  add_cache_options(*command, options->model);
  add_model_options(*command, options->model);
  command->footer(
      "Examples:\n"
      "  tessera generate \"Once upon a time\"\n"
      "  tessera generate --model pythia-160m --weights int4 --greedy \"The capital of France "
      "is\"\n"
      "  tessera generate --attention-sinks 4 --max-tokens -1 --ignore-eos \"Once upon a time\"\n"
      "  tessera generate --prompt-ids 1,2,3 --max-tokens 8 --json | jq .token_ids");
  return [options] { return run_generate(*options); };
}

}  // namespace tessera::app
