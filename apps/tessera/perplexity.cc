// tessera perplexity: how well a model predicts a text.
#include "tessera/perplexity.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "core/size_text.h"
#include "interrupt.h"
#include "model_options.h"
#include "progress.h"
#include "prompt.h"
#include "run_summary.h"
#include "usage_error.h"

namespace tessera::app {
namespace {

struct Options {
  ModelOptions model;
  std::optional<std::string> file, text;
  std::int64_t stride = 0;
  std::int64_t max_tokens = 0;
  bool json = false;
};

std::string read_text(const Options& options) {
  if (options.file.has_value() == options.text.has_value()) {
    fail_usage("give the text as either FILE (- is standard input) or --text");
  }
  return options.text ? *options.text : read_text_file(*options.file);
}

std::vector<std::int32_t> encode(const Session& session, const Options& options,
                                 const std::string& text) {
  // The first token of each chunk is PerplexityOptions::bos.
  std::vector<std::int32_t> ids =
      session.need_tokenizer("take a folder that has one").encode(text, false);
  if (options.max_tokens > 0 && static_cast<std::int64_t>(ids.size()) > options.max_tokens) {
    ids.resize(static_cast<std::size_t>(options.max_tokens));
  }
  return ids;
}

void print_json(const Session& session, const KvCacheOptions& cache, const PerplexityResult& result,
                std::int64_t bos, double seconds) {
  fmt::print("{}\n", nlohmann::json{{"nll", result.nll},
                                    {"nll_stderr", result.nll_error},
                                    {"ppl", result.ppl},
                                    {"ppl_stderr", result.ppl_error},
                                    {"tokens", result.tokens},
                                    {"chunks", result.chunks},
                                    {"complete", !result.cancelled},
                                    {"context", cache.max_tokens},
                                    {"cache", to_string(cache.policy)},
                                    {"bos", bos < 0 ? nlohmann::json() : nlohmann::json(bos)},
                                    {"seconds", seconds},
                                    {"tokens_per_s", static_cast<double>(result.tokens) / seconds},
                                    {"model", session.directory.string()},
                                    {"device", to_string(session.ctx->device())},
                                    {"weights", weights_name(*session.model)},
                                    {"activations", activations_name(*session.ctx)},
                                    {"dtype", name(session.model->dtype())},
                                    {"threads", session.ctx->threads()}}
                         .dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

int run(const Options& options) {
  check_cache_options(options.model);
  const std::string text = read_text(options);
  Session session = open_session(options.model);
  const ModelConfig& config = session.model->config();
  const std::vector<std::int32_t> ids = encode(session, options, text);
  const CachePolicy policy = cache_policy(options.model, config);
  const bool streams = policy.kind != CachePolicy::Kind::full;
  if (streams && options.stride > 0) {
    fail_usage("--stride {} is of chunks; leave it out with --window and --attention-sinks",
               options.stride);
  }
  const PromptEncoder encoder(*session.tokenizer, config, session.directory);
  Progress progress("scoring");
  const PerplexityOptions perplexity_options{
      .context = full_context(options.model, config),
      .stride = options.stride,
      .bos = encoder.bos(),
      .progress = progress.callback(),
      .cancel = &catch_interrupt(),
  };
  const auto start = std::chrono::steady_clock::now();
  PerplexityResult result;
  KvCacheOptions used{.policy = policy, .max_tokens = perplexity_options.context};
  if (streams) {
    KvCache cache = session.model->make_cache(*session.ctx, policy, 0);
    used.max_tokens = policy.n_sink + policy.window;
    result = stream_perplexity(*session.ctx, *session.model, cache, ids, perplexity_options);
  } else {
    result = perplexity(*session.ctx, *session.model, ids, perplexity_options);
  }
  progress.clear();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (options.json) {
    print_json(session, used, result, perplexity_options.bos, seconds);
  } else {
    fmt::print("nll {:.4f} +- {:.4f}   ppl {:.3f} +- {:.3f}\n", result.nll, result.nll_error,
               result.ppl, result.ppl_error);
    std::fflush(stdout);
  }
  fmt::print(stderr,
             "{} of {} tokens scored in {} chunk{} of {}, {:.1f} s, {:.0f} tokens/s{}; memory: "
             "weights {}, peak RSS {}; {}\n",
             result.tokens, ids.size(), result.chunks, result.chunks == 1 ? "" : "s",
             streams ? to_string(policy) : fmt::format("{}", used.max_tokens), seconds,
             static_cast<double>(result.tokens) / seconds, result.cancelled ? ", interrupted" : "",
             size_text(session.model->weight_bytes()), size_text(peak_rss_bytes()),
             what_ran_where(session));
  return result.cancelled ? kInterruptedStatus : 0;
}

}  // namespace

Command add_perplexity(CLI::App& app) {
  CLI::App* command = app.add_subcommand("perplexity", "Measure how well a model predicts a text");
  const auto options = std::make_shared<Options>();
  command->add_option("FILE", options->file, "The text; - is standard input");
  command->add_option("--text", options->text, "The text itself");
  command
      ->add_option("--stride", options->stride,
                   "Tokens from one chunk to the next, less than --context for chunks that overlap "
                   "(as many as --context)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  command
      ->add_option("--max-tokens", options->max_tokens, "Take only the first N tokens of the text")
      ->check(CLI::Range(std::int64_t{2}, std::int64_t{1} << 40));
  command->add_flag("--json", options->json, "Print one JSON object");
  add_cache_options(*command, options->model);
  add_model_options(*command, options->model);
  command->footer(
      "The text is cut into chunks of --context tokens, each read from an empty cache; a chunk's\n"
      "first token is not scored (it is the bos token where the tokenizer adds one). With "
      "--window\n"
      "or --attention-sinks the text is one stream. nll is in nats per token; the standard error "
      "is\n"
      "that of means over blocks of 256 tokens.\n"
      "Examples:\n"
      "  tessera perplexity --model pythia-160m wiki.test.txt\n"
      "  tessera perplexity --weights int4 --activations exact --json story.txt | jq .ppl\n"
      "  tessera perplexity --attention-sinks 4 --window 252 novel.txt");
  return [options] { return run(*options); };
}

}  // namespace tessera::app
