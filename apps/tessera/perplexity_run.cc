#include "perplexity_run.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <utility>

#include "interrupt.h"
#include "option_checks.h"
#include "progress.h"
#include "prompt.h"
#include "run_summary.h"
#include "trained_length.h"
#include "usage_error.h"

namespace tessera::app {
namespace {

nlohmann::json or_null(std::int64_t value, bool given) {
  return given ? nlohmann::json(value) : nlohmann::json();
}

}  // namespace

void add_setting_options(CLI::App& command, PerplexitySetting& setting) {
  command
      .add_option("--stride", setting.stride,
                  "Tokens from one chunk to the next: fewer than --context for chunks that overlap "
                  "(default: --context)")
      ->check(whole_number(1));
  add_cache_options(command, setting.model);
  add_model_options(command, setting.model);
}

void check_setting(const PerplexitySetting& setting) {
  check_cache_options(setting.model);
  load_options(setting.model);
  if (setting.streams() && setting.stride > 0) {
    fail_usage("--stride {} is for chunks; leave it out with --window and --attention-sinks",
               setting.stride);
  }
}

bool same_session(const ModelOptions& a, const ModelOptions& b) {
  return a.model == b.model && a.device == b.device && a.dtype == b.dtype &&
         a.weights == b.weights && a.keep_dense == b.keep_dense && a.activations == b.activations &&
         a.threads == b.threads;
}

std::vector<std::int32_t> encode(const Session& session, const PerplexityText& text) {
  // Without a bos token: PerplexityOptions::bos puts one in front of each chunk.
  std::vector<std::int32_t> ids =
      session.need_tokenizer("take a folder that has one").encode(text.text);
  if (text.max_tokens > 0 && static_cast<std::int64_t>(ids.size()) > text.max_tokens) {
    ids.resize(static_cast<std::size_t>(text.max_tokens));
  }
  return ids;
}

ScoredSetting score(const Session& session, const PerplexitySetting& setting,
                    const std::vector<std::int32_t>& ids, const std::string& progress_name) {
  Context& ctx = *session.ctx;
  const Model& model = *session.model;
  const CachePolicy policy = cache_policy(setting.model, model.config());
  const std::int64_t context = full_context(setting.model, model.config());
  if (setting.stride > context) {
    fail_usage("--stride {} must be from 1 to {}, the tokens of a chunk", setting.stride, context);
  }
  std::vector<std::string> notes = session.notes;
  if (auto note = beyond_trained_length(policy, context, model.config())) {
    fmt::print(stderr, "note: {}\n", *note);
    notes.push_back(std::move(*note));
  }
  Progress progress(progress_name);
  const PerplexityOptions options{
      .context = context,
      .stride = setting.stride,
      .bos = PromptEncoder(*session.tokenizer, model.config(), session.directory).bos(),
      .cache_dtype = cache_dtype(setting.model),
      .progress = progress.callback(),
      .cancel = &catch_interrupt(),
  };
  ScoredSetting scored{.setting = setting,
                       .result = {},
                       .cache = {.policy = policy, .max_tokens = context},
                       .bos = options.bos,
                       .weight_bytes = model.weight_bytes(),
                       .model = session.directory.string(),
                       .device = to_string(ctx.device()),
                       .weights = weights_name(model),
                       .activations = activations_name(ctx),
                       .dtype = std::string(name(model.dtype())),
                       .cache_dtype = options.cache_dtype.value_or(model.cache_dtype(ctx)),
                       .summary = what_ran_where(session),
                       .threads = ctx.threads(),
                       .notes = std::move(notes)};
  const auto start = std::chrono::steady_clock::now();
  if (setting.streams()) {
    scored.cache.max_tokens = policy.n_sink + policy.window;
    KvCache cache = model.make_cache(ctx, policy, /*max_tokens=*/0, /*max_step=*/256,
                                     /*logit_rows=*/1, options.cache_dtype);
    scored.result = stream_perplexity(ctx, model, cache, ids, options);
  } else {
    scored.result = perplexity(ctx, model, ids, options);
  }
  scored.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return scored;
}

std::string reading_text(const ScoredSetting& scored) {
  if (scored.setting.streams()) return "one stream, " + to_string(scored.cache.policy);
  return fmt::format("chunks of {} tokens", scored.cache.max_tokens);
}

nlohmann::json to_json(const ScoredSetting& scored) {
  const PerplexityResult& result = scored.result;
  const ModelOptions& model = scored.setting.model;
  const bool streams = scored.setting.streams();
  const CachePolicy& policy = scored.cache.policy;
  return {{"nll", result.nll},
          {"nll_stderr", result.nll_error},
          {"ppl", result.ppl},
          {"ppl_stderr", result.ppl_error},
          {"tokens", result.tokens},
          {"chunks", result.chunks},
          {"complete", !result.cancelled},
          {"reading", streams ? "stream" : "chunks"},
          {"cache", to_string(policy)},
          {"context", scored.cache.max_tokens},
          {"stride", streams ? nlohmann::json()
                             : nlohmann::json(scored.setting.stride > 0 ? scored.setting.stride
                                                                        : scored.cache.max_tokens)},
          {"attention_sinks", or_null(policy.n_sink, streams)},
          {"window", or_null(policy.window, streams)},
          {"bos", or_null(scored.bos, scored.bos >= 0)},
          {"model", scored.model},
          {"device", scored.device},
          {"weights", scored.weights},
          {"keep_dense", model.keep_dense},
          {"activations", scored.activations},
          {"dtype", scored.dtype},
          {"cache_dtype", cache_dtype_name(scored.cache_dtype)},
          {"threads", scored.threads},
          {"weight_bytes", scored.weight_bytes},
          {"notes", scored.notes},
          {"seconds", scored.seconds},
          {"tokens_per_s", static_cast<double>(result.tokens) / scored.seconds}};
}

nlohmann::json to_json(const PerplexityText& text, std::size_t tokens) {
  return {{"name", text.name},
          {"tokens", tokens},
          {"max_tokens", or_null(text.max_tokens, text.max_tokens > 0)}};
}

}  // namespace tessera::app
