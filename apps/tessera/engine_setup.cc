#include "engine_setup.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "core/checked.h"
#include "core/fail.h"
#include "option_checks.h"
#include "progress.h"
#include "tessera/page_pool.h"
#include "usage_error.h"

namespace tessera::app {
namespace {

std::string kind_name(const EngineFlags& flags) {
  if (flags.draft) return "draft";
  return flags.speculate.value_or("off");
}

// The first id that two tokenizers spell differently; none if they are the same.
std::optional<std::int32_t> first_difference(const Tokenizer& a, const Tokenizer& b) {
  const std::int64_t count = std::max(a.vocab_size(), b.vocab_size());
  for (std::int32_t id = 0; id < count; ++id) {
    const auto spelling = [id](const Tokenizer& t) {
      return id < t.vocab_size() ? t.token(id) : std::string_view();
    };
    if (spelling(a) != spelling(b)) return id;
  }
  return std::nullopt;
}

// Of the model: what a draft model runs is not counted. For one sequence, a pass draws one token,
// and one more for each right guess.
double tokens_per_pass(const EngineStats& stats) {
  const std::int64_t passes =
      std::max<std::int64_t>(stats.generated_tokens - stats.accepted_tokens, 1);
  return static_cast<double>(stats.generated_tokens) / static_cast<double>(passes);
}

void check_draft_vocabulary(const Session& session, const std::string& draft) {
  const std::int64_t own = session.model->config().vocab, other = read_model_config(draft).vocab;
  if (own != other) {
    fail(ErrorCode::invalid_argument,
         "--draft {} has a vocabulary of {} tokens and the model one of {}; give a smaller model "
         "with the same tokenizer",
         draft, other, own);
  }
  const std::filesystem::path file = std::filesystem::path(draft) / "tokenizer.json";
  if (!session.tokenizer || !std::filesystem::exists(file)) return;
  if (const auto id = first_difference(*session.tokenizer, Tokenizer::from_file(file))) {
    fail(ErrorCode::invalid_argument,
         "--draft {} has another vocabulary than the model: token {} differs; give a smaller model "
         "with the same tokenizer",
         draft, *id);
  }
}

}  // namespace

SpeculationOptions::Kind EngineFlags::kind() const {
  if (draft) return SpeculationOptions::Kind::draft;
  return speculate == "ngram" ? SpeculationOptions::Kind::ngram : SpeculationOptions::Kind::off;
}

void add_engine_flags(CLI::App& command, EngineFlags& flags) {
  command
      .add_option("--speculate", flags.speculate,
                  "Guess ahead from what followed the same words earlier; the text stays the same "
                  "(default: off)")
      ->check(one_of({"ngram", "off"}));
  command
      .add_option("--draft", flags.draft,
                  "Guess ahead with this smaller model of the same tokenizer; the text stays the "
                  "same")
      ->type_name("DIR");
  command.add_flag("--batch-invariant", flags.batch_invariant,
                   "The same bits whatever else runs; always so on the CPU, slower on a GPU");
}

void check_engine_flags(const EngineFlags& flags) {
  if (flags.draft && flags.speculate) {
    fail_usage("--draft guesses ahead by itself; leave out --speculate {}", *flags.speculate);
  }
}

std::unique_ptr<Model> load_draft(Session& session, const ModelOptions& options,
                                  const EngineFlags& flags) {
  if (!flags.draft) return nullptr;
  check_draft_vocabulary(session, *flags.draft);
  LoadOptions load = load_options(options);
  load.keep_dense.clear();  // these name layers of the other model
  Progress progress("loading the draft");
  load.progress = progress.callback();
  return load_model(*session.ctx, *flags.draft, load);
}

EngineOptions engine_options(const EngineFlags& flags, const ModelOptions& model,
                             const Model* draft, const CachePolicy& policy, std::int64_t context,
                             std::int64_t max_sequences) {
  EngineOptions options;
  // Sinks lie on pages of their own, and a window may begin within a page.
  const std::int64_t page = options.page_size;
  options.context = policy.kind == CachePolicy::Kind::full
                        ? context
                        : (ceil_div(policy.n_sink, page) + 1) * page + policy.window;
  options.max_sequences = max_sequences;
  options.max_waiting = 4 * max_sequences;
  options.cache_dtype = cache_dtype(model);
  options.batch_invariant = flags.batch_invariant;
  options.speculation.kind = flags.kind();
  options.speculation.draft = draft;
  return options;
}

CacheFacts facts_of(const Engine& engine, const Model& model, const CachePolicy& policy) {
  const ModelConfig& config = model.config();
  const DType dtype = *engine.options().cache_dtype;
  return {.policy = policy,
          .dtype = dtype,
          .bytes = page_pool_bytes({.layers = config.layers,
                                    .kv_heads = config.kv_heads,
                                    .head_dim = config.head_dim,
                                    .dtype = dtype,
                                    .pages = engine.options().pages,
                                    .page_size = engine.options().page_size,
                                    .watcher = model.watch_pool()})};  // a part, if it is spread
}

std::string speculation_text(const EngineFlags& flags, const EngineStats& stats) {
  std::string text = fmt::format(
      "speculation ({}): {} of {} guesses were right ({:.0f}%), {:.2f} tokens per pass of the "
      "model",
      kind_name(flags), stats.accepted_tokens, stats.drafted_tokens, 100 * stats.accept_rate(),
      tokens_per_pass(stats));
  if (stats.failed_guesses > 0) {
    text += fmt::format("; guessing failed in {} steps", stats.failed_guesses);
  }
  return text;
}

nlohmann::json speculation_json(const EngineFlags& flags, const EngineStats& stats) {
  return {{"kind", kind_name(flags)},
          {"drafted_tokens", stats.drafted_tokens},
          {"accepted_tokens", stats.accepted_tokens},
          {"accept_rate", stats.accept_rate()},
          {"failed_guesses", stats.failed_guesses},
          {"tokens_per_pass", tokens_per_pass(stats)}};
}

}  // namespace tessera::app
