// tessera chat: turns at the keyboard or from a pipe.
#include "tessera/chat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "chat_template_option.h"
#include "commands.h"
#include "conversation.h"
#include "help_format.h"
#include "interrupt.h"
#include "model_options.h"
#include "option_checks.h"
#include "output.h"
#include "run_summary.h"
#include "sampling_flags.h"
#include "tessera/error.h"
#include "tessera/generate.h"
#include "trained_length.h"
#include "usage_error.h"

namespace tessera::app {
namespace {

// Tokens of a full cache where --context does not say: models trained for 128 thousand tokens would
// ask for gigabytes.
constexpr std::int64_t kDefaultContext = 8192;

struct ChatFlags {
  ModelOptions model;
  SamplingFlags sampling;
  std::string template_name, system;
  std::int64_t max_tokens = 1024;
  bool ignore_eos = false, json = false;
  std::vector<std::string> stop;
};

ChatTemplate choose_template(const ChatFlags& options, Session& session) {
  if (!options.template_name.empty()) return chat_template(options.template_name);
  if (auto found = folder_chat_template(session.directory)) return *std::move(found);
  session.note(
      "this model has no chat template: it continues your text unchanged (--chat-template "
      "chooses one)");
  return chat_template("plain");
}

KvCache make_chat_cache(Session& session, const ModelOptions& options) {
  const ModelConfig& config = session.model->config();
  std::int64_t context = full_context(options, config);
  if (options.context == 0) context = std::min(context, kDefaultContext);
  const CachePolicy policy = cache_policy(options, config);
  KvCache cache = session.model->make_cache(*session.ctx, policy, context, /*max_step=*/256,
                                            /*logit_rows=*/1, cache_dtype(options));
  note_trained_length(session, policy, context);
  return cache;
}

// Text that no turn could take is refused before the first one.
void check_system(const Tokenizer& tokenizer, const std::string& system) {
  try {
    tokenizer.encode(system);
  } catch (const Error& error) {
    fail_usage("--system: {}", error.what());
  }
}

// One line for a turn.
void print_turn_json(std::int64_t number, const std::string& user, const Turn& turn) {
  nlohmann::json json = {{"turn", number}, {"user", user}, {"notes", turn.notes}};
  if (!turn.refusal.empty()) {
    json["error"] = turn.refusal;
  } else {
    const Timing timing = timing_of(turn.result);
    json["text"] = turn.result.text;
    json["token_ids"] = turn.result.ids;
    json["prompt_tokens"] = turn.result.prompt_tokens;
    json["stop_reason"] = name(turn.result.reason);
    json["ttft_ms"] = timing.ttft_ms;
    json["tpot_ms"] = timing.tpot_ms;
    json["tokens_per_s"] = timing.tokens_per_s;
  }
  // What the user typed need not be UTF-8.
  write_out(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

// Reads turns and answers them.
class Dialogue {
 public:
  Dialogue(Session& session, Conversation& conversation, bool json)
      : session_(session), conversation_(conversation), json_(json) {}

  // True where Ctrl-C ended it.
  bool run() {
    catch_interrupt();
    for (std::string line;;) {
      if (keyboard_) fmt::print(stderr, "> ");
      if (!std::getline(std::cin, line)) return interrupted();
      if (line == "/exit") return false;
      if (line == "/reset") {
        conversation_.reset();
        continue;
      }
      answer(line);
      // At the keyboard Ctrl-C ends an answer, and the conversation goes on.
      if (interrupted() && !keyboard_) return true;
      if (keyboard_) catch_interrupt();
    }
  }

 private:
  void answer(const std::string& user) {
    Turn turn = conversation_.answer(user, [&](std::string_view text) {
      if (!json_) write_out(text);
    });
    if (!json_ && turn.refusal.empty()) write_out("\n");
    if (!turn.refusal.empty()) fmt::print(stderr, "note: {}\n", turn.refusal);
    for (const std::string& note : turn.notes) fmt::print(stderr, "note: {}\n", note);
    if (!json_) return;
    // The session's own notes come with the first turn.
    if (++turns_ == 1) {
      turn.notes.insert(turn.notes.begin(), session_.notes.begin(), session_.notes.end());
    }
    print_turn_json(turns_, user, turn);
  }

  Session& session_;
  Conversation& conversation_;
  bool json_;
  bool keyboard_ = isatty(STDIN_FILENO) == 1;
  std::int64_t turns_ = 0;
};

int run_chat(const ChatFlags& options) {
  check_cache_options(options.model);
  const SamplingOptions sampling = options.sampling.parsed();
  check_sampling(sampling);
  Session session = open_session(options.model);
  check_system(session.need_tokenizer("use a folder that has one"), options.system);
  const ChatTemplate chat = choose_template(options, session);
  KvCache cache = make_chat_cache(session, options.model);
  Conversation conversation(session,
                            {.system = options.system,
                             .generate = {.max_tokens = options.max_tokens,
                                          .ignore_eos = options.ignore_eos,
                                          .stop = options.stop,
                                          .sampling = sampling}},
                            chat, cache);
  const bool keyboard = isatty(STDIN_FILENO) == 1;
  if (keyboard) {
    fmt::print(stderr, "{} template; /reset starts over, /exit or Ctrl-D ends, Ctrl-C interrupts\n",
               chat.name);
  }
  const bool ended_by_interrupt = Dialogue(session, conversation, options.json).run();
  fmt::print(stderr, "{}{}\n", keyboard ? "\n" : "",
             summary_text(session, cache, conversation.total()));
  return ended_by_interrupt ? kInterruptedStatus : 0;
}

}  // namespace

Command add_chat(CLI::App& app) {
  CLI::App* command = app.add_subcommand("chat", "Talk with a model, turn by turn");
  const auto options = std::make_shared<ChatFlags>();
  add_chat_template_option(*command, options->template_name);
  command->add_option("--system", options->system, "System message, before the first turn");
  command->add_option("--max-tokens", options->max_tokens, "The most tokens of an answer")
      ->check(whole_number(1))
      ->capture_default_str();
  command->add_flag("--ignore-eos", options->ignore_eos, "Continue after an end token");
  command->add_option("--stop", options->stop, "End an answer before this text; repeatable")
      ->allow_extra_args(false)
      ->check(not_empty());
  command->add_flag("--json", options->json, "Print one JSON object per turn, each on a line");
  under_heading(*command, "Sampling", [&] { add_sampling_flags(*command, options->sampling); });
  add_cache_options(*command, options->model);
  add_model_options(*command, options->model);
  command->footer(
      "Each line is a turn. /reset forgets the conversation, /exit ends it. What you type, and "
      "--system, are text: <|im_end|> in them does not end a turn.\n\n"
      "Examples:\n"
      "  tessera chat --model qwen2.5-0.5b-instruct --weights int4\n"
      "  tessera chat --model llama-3.2-1b-instruct --attention-sinks 4 --window 4092\n"
      "  echo 'Tell me a story.' | tessera chat --model tinyllama-chat --system 'Be brief.'\n"
      "  tessera chat --model DIR --json < questions.txt | jq -r .text");
  return [options] { return run_chat(*options); };
}

}  // namespace tessera::app
