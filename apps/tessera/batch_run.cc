#include "batch_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/fail.h"
#include "interrupt.h"
#include "model/checkpoint/quote.h"

namespace tessera::app {
namespace {

// Enough that the engine always finds the next one waiting.
constexpr std::int64_t kAhead = 2;  // requests in flight for each sequence that runs
constexpr auto kLookEvery = std::chrono::milliseconds(100);  // at signals and the progress bar

// An error of the machine, not of the request: the next run may succeed.
bool ends_the_run(ErrorCode code) {
  return code == ErrorCode::device || code == ErrorCode::out_of_memory;
}

}  // namespace

BatchRun::BatchRun(const Session& session, const EngineOptions& options,
                   const RequestReader& reader, const std::string& input, InputIndex& index,
                   ResultsFile& results)
    : tokenizer_(session.tokenizer ? &*session.tokenizer : nullptr),
      reader_(reader),
      lines_(input),
      index_(index),
      results_(results),
      total_(index.requests() - index.done()),
      engine_(*session.ctx, *session.model, tokenizer_, options) {
  counts_.skipped = index.done();
}

BatchCounts BatchRun::run() {
  const std::int64_t most = kAhead * engine_.options().max_sequences;
  bool has_more = true;
  while (ended_by() == 0) {
    while (has_more && in_flight_ < most && ended_by() == 0) has_more = read_next();
    if (!has_more && in_flight_ == 0) break;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kLookEvery, [&] { return !ended_.empty(); });
    }
    write_ended();
    show_progress();
  }
  write_ended();
  counts_.interrupted = ended_by() != 0;
  if (!counts_.interrupted) {  // the last step is counted once the engine is idle
    engine_.drain_until(std::chrono::steady_clock::now() + std::chrono::seconds(10));
  }
  progress_.clear();
  results_.sync();
  return counts_;
}

// The index tells which custom_id is whose, so the lines must be those that it has read.
void BatchRun::check_unchanged(const std::optional<RequestLine>& request) const {
  if (index_.is_unchanged(lines_.number(), request)) return;
  fail(ErrorCode::file,
       "{} of the input has changed while it was read; run the same command again to continue",
       line_name(lines_.number()));
}

// False at the end of the input. What was appended to it meanwhile is left for another run.
bool BatchRun::read_next() {
  if (!lines_.next()) {
    if (lines_.number() == index_.lines()) return false;
    fail(ErrorCode::file, "the input had {} lines and now ends after {}: it has changed",
         index_.lines(), lines_.number());
  }
  const std::int64_t number = lines_.number();
  if (number > index_.lines()) {
    counts_.has_more = true;
    return false;
  }
  if (index_.is_done(number)) return true;
  std::optional<RequestLine> line;
  if (!lines_.is_blank()) line = parse_request_line(lines_);
  check_unchanged(line);
  if (!line) return true;
  const RequestLine& request = *line;
  const std::int64_t owner = index_.line_of(request.id);
  if (owner == number) {
    submit(request);
    return true;
  }
  const std::string error =
      request.id.empty()
          ? request.error
          : fmt::format("line {}: the custom_id {} is that of line {}; each may be used once",
                        number, model::in_quotes(request.id), owner);
  write_error(line_error_line(number, request.id, error));
  return true;
}

void BatchRun::submit(const RequestLine& line) {
  try {
    Request request = reader_.read(line.json, line_name(lines_.number()));
    // The engine refuses more answers than it has places for. No memory is taken for them before.
    const std::int64_t answers = std::min(request.n, engine_.options().max_sequences);
    const auto pending = std::make_shared<Pending>(line.id, lines_.number(), answers,
                                                   request.options.top_logprobs >= 0);
    request.on_event = [this, pending](const Event& event) {
      if (!pending->answers.take(event)) return;
      {
        const std::lock_guard lock(mutex_);
        ended_.push_back(pending);
      }
      changed_.notify_one();
    };
    engine_.submit(std::move(request));
    ++in_flight_;
  } catch (const Error& error) {
    if (ends_the_run(error.code())) throw;
    write_error(error_line(line.id, error.what()));
  }
}

void BatchRun::write_error(const std::string& text) {
  results_.append(text);
  ++counts_.errors;
}

void BatchRun::write_ended() {
  std::deque<std::shared_ptr<Pending>> ended;
  {
    const std::lock_guard lock(mutex_);
    ended.swap(ended_);
  }
  for (const auto& pending : ended) {
    --in_flight_;
    const Answers& answers = pending->answers;
    if (answers.error() && ends_the_run(answers.error()->code())) {
      fail(answers.error()->code(), "{}; run the same command again to continue",
           answers.error()->what());
    }
    if (answers.cancelled()) continue;
    results_.append(result_line(pending->id, answers, tokenizer_));
    ++(answers.error() ? counts_.errors : counts_.answered);
  }
}

void BatchRun::show_progress() {
  const EngineStats stats = engine_.stats();
  const double rate =
      stats.step_seconds > 0 ? static_cast<double>(stats.generated_tokens) / stats.step_seconds : 0;
  progress_.update(counts_.answered + counts_.errors, total_, fmt::format("{:.0f} tokens/s", rate));
}

}  // namespace tessera::app
