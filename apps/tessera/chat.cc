// tessera chat: turns at the keyboard or from a pipe. The KV cache lives as long as the
// conversation: each turn reads only what is new.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <memory>

#include "chat_template.h"
#include "commands.h"
#include "interrupt.h"
#include "model_options.h"
#include "prompt.h"
#include "run_summary.h"
#include "sampling_flags.h"
#include "tessera/generate.h"

namespace tessera::app {
namespace {

// Of a full cache, where --context does not say: models trained for 128 thousand tokens would ask
// for gigabytes.
constexpr std::int64_t kDefaultContext = 8192;

struct Options {
  ModelOptions model;
  SamplingFlags sampling;
  std::string template_name, system;
  std::int64_t max_tokens = 1024;
  bool ignore_eos = false;
  std::vector<std::string> stop;
};

class Conversation {
 public:
  Conversation(Session& session, const Options& options, const ChatTemplate& chat, KvCache& cache)
      : session_(session),
        options_(options),
        chat_(chat),
        cache_(cache),
        tokenizer_(*session.tokenizer),
        encoder_(tokenizer_, session.model->config(), session.directory),
        generate_options_{.max_tokens = options.max_tokens,
                          .ignore_eos = options.ignore_eos,
                          .stop = options.stop,
                          .sampling = options.sampling.parsed()} {
    if (const auto end = tokenizer_.id_of(chat.turn_end); !chat.turn_end.empty() && end) {
      turn_end_ = *end;
      generate_options_.stop_ids = {*end};
    }
    check(generate_options_.sampling, session.model->config().vocab);
  }

  // Writes the answer, or says why there is none.
  void answer(const std::string& user) {
    const std::vector<std::int32_t> ids = next_ids(user);
    if (!fits(static_cast<std::int64_t>(ids.size()))) return;
    generate_options_.cancel = &catch_interrupt();
    // Another answer to the same words: each turn draws anew.
    ++generate_options_.sampling.seed;
    const GenerateResult result =
        generate(*session_.ctx, *session_.model, cache_, &tokenizer_, ids, generate_options_,
                 [](const GeneratedToken& token) {
                   std::fwrite(token.text.data(), 1, token.text.size(), stdout);
                   std::fflush(stdout);
                 });
    fmt::print("\n");
    std::fflush(stdout);
    if (result.reason == StopReason::context_full) say_full();
    remember(result);
  }

  void reset() {
    cache_.clear();
    carry_.clear();
    first_ = true;
  }

  // Of all turns together.
  const GenerateResult& total() const { return total_; }

 private:
  // What the model has not read yet: the end of the last answer, and this turn.
  std::vector<std::int32_t> next_ids(const std::string& user) const {
    const std::string text = chat_.turn(user, options_.system, first_);
    if (first_) return encoder_.encode(text);
    std::vector<std::int32_t> ids = carry_;
    const std::vector<std::int32_t> turn = tokenizer_.encode(chat_.turn_gap + text, false);
    ids.insert(ids.end(), turn.begin(), turn.end());
    return ids;
  }

  bool fits(std::int64_t tokens) const {
    const KvCacheOptions& o = cache_.options();
    if (tokens == 0) {
      fmt::print(stderr, "note: an empty line has no tokens for this model; write something\n");
      return false;
    }
    if (o.policy.kind != CachePolicy::Kind::full || cache_.seen() + tokens <= o.max_tokens) {
      return true;
    }
    say_full();
    return false;
  }

  void say_full() const {
    fmt::print(stderr, "note: the context of {} tokens is full; /reset begins anew, and {}\n",
               cache_.options().max_tokens, streaming_advice(session_.model->config()));
  }

  // The last token has not been through the model: it goes ahead of the next turn, followed by the
  // token that ends an answer, where the model did not write that itself.
  void remember(const GenerateResult& result) {
    if (result.ids.empty()) {
      fmt::print(stderr,
                 "note: interrupted in the middle of your turn; the conversation begins anew\n");
      return reset();
    }
    first_ = false;
    carry_.clear();
    const std::int32_t last = result.ids.back();
    const bool is_turn_end = last == turn_end_;
    if (is_turn_end || result.reason != StopReason::eos) carry_.push_back(last);
    if (!is_turn_end && turn_end_ >= 0) carry_.push_back(turn_end_);
    total_.ids.insert(total_.ids.end(), result.ids.begin(), result.ids.end());
    if (total_.prompt_tokens == 0) total_.first_seconds = result.first_seconds;
    total_.prompt_tokens += result.prompt_tokens;
    total_.decode_seconds += result.decode_seconds;
    total_.reason = result.reason;
  }

  Session& session_;
  const Options& options_;
  const ChatTemplate& chat_;
  KvCache& cache_;
  const Tokenizer& tokenizer_;
  PromptEncoder encoder_;
  GenerateOptions generate_options_;
  std::int32_t turn_end_ = -1;
  std::vector<std::int32_t> carry_;
  bool first_ = true;
  GenerateResult total_;
};

const ChatTemplate& choose_template(const Options& options, const Session& session) {
  if (!options.template_name.empty()) return chat_template(options.template_name);
  if (const ChatTemplate* found = detect_chat_template(session.directory)) return *found;
  fmt::print(stderr,
             "note: this model has no chat template; it goes on from what you write, as plain text "
             "(--template chooses one)\n");
  return chat_template("plain");
}

KvCache make_cache(const Session& session, const ModelOptions& options) {
  const ModelConfig& config = session.model->config();
  std::int64_t context = full_context(options, config);
  if (options.context == 0) context = std::min(context, kDefaultContext);
  return session.model->make_cache(*session.ctx, cache_policy(options, config), context);
}

int run(const Options& options) {
  check_cache_options(options.model);
  // Wrong words are refused before a model is loaded.
  if (!options.template_name.empty()) chat_template(options.template_name);
  check_sampling(options.sampling.parsed());
  Session session = open_session(options.model);
  session.need_tokenizer("take a folder that has one");
  const ChatTemplate& chat = choose_template(options, session);
  KvCache cache = make_cache(session, options.model);
  Conversation conversation(session, options, chat, cache);
  const bool keyboard = isatty(STDIN_FILENO) == 1;
  if (keyboard) {
    fmt::print(stderr, "{} template; /reset begins anew, /exit or Ctrl-D ends, Ctrl-C interrupts\n",
               chat.name);
  }
  bool ended_by_interrupt = false;
  catch_interrupt();
  for (std::string line; !ended_by_interrupt;) {
    if (keyboard) fmt::print(stderr, "> ");
    if (!std::getline(std::cin, line)) {
      ended_by_interrupt = interrupted();
      break;
    }
    if (line == "/exit") break;
    if (line == "/reset") {
      conversation.reset();
      continue;
    }
    conversation.answer(line);
    // At the keyboard Ctrl-C ends an answer, and the conversation goes on.
    if (interrupted() && !keyboard) ended_by_interrupt = true;
    if (keyboard) catch_interrupt();
  }
  fmt::print(stderr, "{}{}\n", keyboard ? "\n" : "",
             summary_line(session, cache, conversation.total()));
  return ended_by_interrupt ? kInterruptedStatus : 0;
}

}  // namespace

Command add_chat(CLI::App& app) {
  CLI::App* command = app.add_subcommand("chat", "Talk with a model, turn by turn");
  const auto options = std::make_shared<Options>();
  command->add_option("--template", options->template_name,
                      "chatml, llama3, llama2, mistral, zephyr or plain (what the model's folder "
                      "says)");
  command->add_option("--system", options->system, "What the model is told before the first turn");
  command->add_option("--max-tokens", options->max_tokens, "Of an answer")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40))
      ->capture_default_str();
  command->add_flag("--ignore-eos", options->ignore_eos, "Go on after an end token");
  command->add_option("--stop", options->stop, "End an answer before this text; repeatable")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_sampling_flags(*command, options->sampling);
  add_cache_options(*command, options->model);
  add_model_options(*command, options->model);
  command->footer(
      "/reset forgets the conversation, /exit ends it. A line is a turn.\n"
      "Examples:\n"
      "  tessera chat --model qwen2.5-0.5b-instruct --weights int4\n"
      "  tessera chat --model llama-3.2-1b-instruct --attention-sinks 4 --window 4092\n"
      "  echo 'Tell me a story.' | tessera chat --model tinyllama-chat --system 'Be brief.'");
  return [options] { return run(*options); };
}

}  // namespace tessera::app
