#include "generate_choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "answers.h"
#include "interrupt.h"
#include "output.h"
#include "run_summary.h"

namespace tessera::app {
namespace {

// Writes each answer as it comes, in the order of their numbers: what comes early is held back.
class AnswerPrinter {
 public:
  AnswerPrinter(std::int64_t n, std::string echo)
      : echo_(std::move(echo)), answers_(static_cast<std::size_t>(n)) {}

  void add(std::int64_t choice, const std::string& text) {
    answers_[static_cast<std::size_t>(choice)].waiting += text;
    write();
  }

  // `rest`: whole lines that follow the text.
  void end(std::int64_t choice, const std::string& rest) {
    Answer& answer = answers_[static_cast<std::size_t>(choice)];
    answer.waiting += "\n" + rest;
    answer.ended = true;
    write();
  }

 private:
  struct Answer {
    std::string waiting;
    bool begun = false, ended = false;
  };

  void write() {
    for (; current_ < answers_.size(); ++current_) {
      Answer& answer = answers_[current_];
      if (answer.waiting.empty() && !answer.ended) return;
      if (!answer.begun) write_out(heading() + echo_);
      answer.begun = true;
      write_out(std::exchange(answer.waiting, {}));
      if (!answer.ended) return;
    }
  }

  std::string heading() const {
    if (answers_.size() == 1) return {};
    return fmt::format("--- answer {} of {} ---\n", current_ + 1, answers_.size());
  }

  std::string echo_;
  std::vector<Answer> answers_;
  std::size_t current_ = 0;  // the one that is being written
};

std::string dumped(const nlohmann::json& json, int indent) {
  // Text is valid UTF-8; a path on the disk need not be.
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// Without a tokenizer the ids are the text.
std::string shown_text(const Event& event, const Tokenizer* tokenizer) {
  if (tokenizer != nullptr) return event.token.text;
  if (event.kind != Event::Kind::token) return {};
  return fmt::format("{} ", event.token.sampled.token.id);
}

void print_event(AnswerPrinter& printer, const Answers& answers, const Event& event,
                 const Tokenizer* tokenizer) {
  printer.add(event.choice, shown_text(event, tokenizer));
  if (event.kind == Event::Kind::token) return;
  std::string lines;
  const GenerateResult& result = answers.results()[static_cast<std::size_t>(event.choice)];
  for (const auto& token : logprobs_json(result, tokenizer)) lines += dumped(token, -1);
  printer.end(event.choice, lines);
}

nlohmann::json answer_json(const GenerateResult& result, bool logprobs,
                           const Tokenizer* tokenizer) {
  nlohmann::json json = {
      {"token_ids", result.ids}, {"text", result.text}, {"stop_reason", name(result.reason)}};
  if (logprobs) json["logprobs"] = logprobs_json(result, tokenizer);
  return json;
}

// The times of all answers together: from the first token of any to the last one.
Timing timing_of_all(const Answers& answers) {
  GenerateResult all;
  std::int64_t more_tokens = 0;  // after the first of each
  for (const GenerateResult& result : answers.results()) {
    all.first_seconds = std::max(all.first_seconds, result.first_seconds);
    all.decode_seconds = std::max(all.decode_seconds, result.decode_seconds);
    more_tokens += std::max<std::int64_t>(std::ssize(result.ids) - 1, 0);
  }
  if (answers.generated_tokens() > 0) all.ids.resize(static_cast<std::size_t>(more_tokens) + 1);
  return timing_of(all);
}

std::string tokens_text(const Answers& answers) {
  const auto& results = answers.results();
  if (results.size() > 1) {
    return fmt::format("{} tokens in, {} out ({} answers)", answers.prompt_tokens(),
                       answers.generated_tokens(), results.size());
  }
  return fmt::format("{} tokens in, {} out ({})", answers.prompt_tokens(), results[0].ids.size(),
                     name(results[0].reason));
}

nlohmann::json choices_json(const Session& session, const ChoicesRun& run, const Answers& answers,
                            const CacheFacts& cache) {
  const Tokenizer* tokenizer = session.tokenizer ? &*session.tokenizer : nullptr;
  const Timing timing = timing_of_all(answers);
  nlohmann::json json = session_json(session, cache);
  json["prompt_ids"] = run.prompt_ids;
  json["ttft_ms"] = timing.ttft_ms;
  json["tpot_ms"] = timing.tpot_ms;
  json["tokens_per_s"] = timing.tokens_per_s;
  const auto& results = answers.results();
  if (results.size() == 1) {
    json.update(answer_json(results[0], answers.has_logprobs(), tokenizer));
    return json;
  }
  for (const GenerateResult& result : results) {
    json["choices"].push_back(answer_json(result, answers.has_logprobs(), tokenizer));
  }
  return json;
}

Request request_of(const ChoicesRun& run) {
  Request request;
  request.prompt_ids = run.prompt_ids;
  request.options = run.generation;
  request.options.cancel = &catch_interrupt();
  request.n = run.n;
  request.policy = run.policy;
  return request;
}

}  // namespace

int run_choices(Session& session, const ModelOptions& model, const EngineFlags& flags,
                const ChoicesRun& run) {
  const std::unique_ptr<Model> draft = load_draft(session, model, flags);
  const Tokenizer* tokenizer = session.tokenizer ? &*session.tokenizer : nullptr;
  EngineOptions options = engine_options(flags, model, draft.get(), run.policy, run.context, run.n);
  options.prefix_cache = false;  // there is one request
  Engine engine(*session.ctx, *session.model, tokenizer, options);
  AnswerPrinter printer(run.n, run.echo);
  Answers answers(run.n, run.generation.top_logprobs >= 0);
  RequestHandle handle = engine.submit(request_of(run));
  while (const std::optional<Event> event = handle.next()) {
    answers.take(*event);
    if (!run.json) print_event(printer, answers, *event, tokenizer);
  }
  if (answers.error()) throw *answers.error();
  // The last step is counted once the engine is idle.
  engine.drain_until(std::chrono::steady_clock::now() + std::chrono::seconds(10));
  const EngineStats stats = engine.stats();
  const CacheFacts cache = facts_of(engine, *session.model, run.policy);
  const auto is_full = [](const GenerateResult& r) { return r.reason == StopReason::context_full; };
  if (std::any_of(answers.results().begin(), answers.results().end(), is_full)) {
    session.note(fmt::format("the context of {} tokens is full; {}", options.context,
                             streaming_advice(session.model->config())));
  }
  const bool speculates = flags.kind() != SpeculationOptions::Kind::off;
  if (run.json) {
    nlohmann::json json = choices_json(session, run, answers, cache);
    if (speculates) json["speculation"] = speculation_json(flags, stats);
    write_out(dumped(json, 2));
  }
  flush_out();
  const Timing timing = timing_of_all(answers);
  fmt::print(stderr, "{}: first {:.1f} ms, then {:.2f} ms each, {:.1f}/s\n", tokens_text(answers),
             timing.ttft_ms, timing.tpot_ms, timing.tokens_per_s);
  if (speculates) fmt::print(stderr, "{}\n", speculation_text(flags, stats));
  fmt::print(stderr, "{}\n", memory_text(session, cache));
  return answers.cancelled() ? kInterruptedStatus : 0;
}

}  // namespace tessera::app
