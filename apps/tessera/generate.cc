// tessera generate: a prompt in, text out, as it comes.
#include "tessera/generate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "core/fail.h"
#include "interrupt.h"
#include "model_options.h"
#include "prompt.h"
#include "run_summary.h"
#include "sampling_flags.h"
#include "usage_error.h"

namespace tessera::app {
namespace {

struct Options {
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

// What can be known of the prompt before a model is loaded.
Prompt read_prompt(const Options& options) {
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
  // Editors and echo end a file with a newline that nobody means as a part of the prompt.
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
        "the prompt is empty; it needs at least one token, and this model's tokenizer puts none in "
        "front of a text");
  }
}

// A cache for this run: a full one has room for prompt and text, and no more.
KvCache make_cache(const Session& session, const Options& options, std::int64_t prompt_tokens) {
  const ModelConfig& config = session.model->config();
  const CachePolicy policy = cache_policy(options.model, config);
  std::int64_t context = full_context(options.model, config);
  if (policy.kind == CachePolicy::Kind::full) {
    if (prompt_tokens > context) {
      fail(ErrorCode::invalid_argument,
           "the prompt has {} tokens and the cache holds at most {}{}; shorten it, or {}",
           prompt_tokens, context,
           options.model.context > 0 ? "" : ", the length that the model was trained for",
           streaming_advice(config));
    }
    if (options.max_tokens > 0) context = std::min(context, prompt_tokens + options.max_tokens);
  }
  return session.model->make_cache(*session.ctx, policy, context);
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

void print_json(const Session& session, const KvCache& cache, const Prompt& prompt,
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

// Without a tokenizer the ids are the text.
void print_token(const Session& session, const GeneratedToken& token) {
  if (session.tokenizer) {
    std::fwrite(token.text.data(), 1, token.text.size(), stdout);
  } else {
    fmt::print("{} ", token.sampled.token.id);
  }
  std::fflush(stdout);
}

int run(const Options& options) {
  Prompt prompt = read_prompt(options);
  check_cache_options(options.model);
  if (options.max_tokens == 0) fail_usage("--max-tokens 0 writes nothing; -1 is for no limit");
  GenerateOptions generate_options{.max_tokens = options.max_tokens,
                                   .ignore_eos = options.ignore_eos,
                                   .stop = options.stop,
                                   .sampling = options.sampling.parsed(),
                                   .top_logprobs = options.logprobs,
                                   .cancel = nullptr};
  check_sampling(generate_options.sampling);
  Session session = open_session(options.model);
  encode_prompt(session, prompt);
  KvCache cache = make_cache(session, options, static_cast<std::int64_t>(prompt.ids.size()));
  generate_options.cancel = &catch_interrupt();
  const bool echo = !prompt.from_ids && (options.echo || isatty(STDOUT_FILENO) == 1);
  bool printed_prompt = options.json || !echo;
  const auto on_token = [&](const GeneratedToken& token) {
    if (options.json) return;
    if (!printed_prompt) std::fwrite(prompt.text.data(), 1, prompt.text.size(), stdout);
    printed_prompt = true;
    print_token(session, token);
  };
  const GenerateResult result = generate(*session.ctx, *session.model, cache,
                                         session.tokenizer ? &*session.tokenizer : nullptr,
                                         prompt.ids, generate_options, on_token);
  if (options.json) {
    print_json(session, cache, prompt, result, options.logprobs >= 0);
  } else {
    fmt::print("\n");
    std::fflush(stdout);
    if (options.logprobs >= 0) {
      const Tokenizer* tokenizer = session.tokenizer ? &*session.tokenizer : nullptr;
      for (const auto& token : logprobs_json(result, tokenizer)) {
        fmt::print("{}\n", token.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
      }
    }
  }
  if (result.reason == StopReason::context_full) {
    fmt::print(stderr, "note: the context of {} tokens is full; {}\n", cache.options().max_tokens,
               streaming_advice(session.model->config()));
  }
  fmt::print(stderr, "{}\n", summary_line(session, cache, result));
  return result.reason == StopReason::cancelled ? kInterruptedStatus : 0;
}

}  // namespace

Command add_generate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "Write on from a prompt");
  const auto options = std::make_shared<Options>();
  command->add_option("PROMPT,--prompt", options->prompt, "The text to go on from");
  command->add_option("--prompt-ids", options->prompt_ids, "Token ids instead of a text: 1,2,3");
  command->add_option("--prompt-file", options->prompt_file,
                      "A file with the prompt; - is standard input. A newline at its end is left "
                      "out");
  command
      ->add_option("--max-tokens", options->max_tokens,
                   "End after this many tokens; -1: only at an end token, a stop string or Ctrl-C")
      ->check(CLI::Range(std::int64_t{-1}, std::int64_t{1} << 40))
      ->capture_default_str();
  command->add_flag("--ignore-eos", options->ignore_eos, "Go on after an end token");
  command->add_option("--stop", options->stop, "End before this text; repeatable")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      ->add_option("--logprobs", options->logprobs,
                   "Report each token's log probability and the N most likely tokens")
      ->check(CLI::Range(0, 1000));
  command->add_flag("--echo", options->echo, "Print the prompt first, as on a terminal");
  command->add_flag("--json", options->json, "Print one JSON object at the end");
  add_sampling_flags(*command, options->sampling);
  add_cache_options(*command, options->model);
  add_model_options(*command, options->model);
  command->footer(
      "Examples:\n"
      "  tessera generate \"Once upon a time\"\n"
      "  tessera generate --model pythia-160m --weights int4 --greedy \"The capital of France "
      "is\"\n"
      "  tessera generate --attention-sinks 4 --window 252 --max-tokens -1 \"Once upon a time\"\n"
      "  tessera generate --prompt-ids 1,2,3 --max-tokens 8 --json | jq .token_ids");
  return [options] { return run(*options); };
}

}  // namespace tessera::app
