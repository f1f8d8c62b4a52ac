// The caller's end of a request: a queue of events that the engine's thread fills.
#include <algorithm>
#include <utility>

#include "core/fail.h"
#include "engine/request_state.h"

namespace tessera {
namespace {

RequestHandle::State& state_or_refuse(const std::shared_ptr<RequestHandle::State>& state) {
  if (!state) fail(ErrorCode::invalid_argument, "this handle has no request; submit() gives one");
  return *state;
}

}  // namespace

void RequestHandle::State::deliver(Event event) {
  const bool ends = event.kind != Event::Kind::token;
  if (on_event) {
    try {
      on_event(event);
    } catch (...) {
      // The caller cannot take its tokens: nobody waits for more of them.
      cancelled = true;
    }
  }
  const std::lock_guard lock(mutex);
  if (!on_event) events.push_back(std::move(event));
  if (ends) --open_choices;
  changed.notify_all();
}

std::uint64_t RequestHandle::id() const { return state_or_refuse(state_).id; }

void RequestHandle::cancel() { state_or_refuse(state_).cancelled = true; }

std::optional<Event> RequestHandle::next() {
  return next_until(std::chrono::steady_clock::time_point::max());
}

std::optional<Event> RequestHandle::next_until(std::chrono::steady_clock::time_point time) {
  State& state = state_or_refuse(state_);
  if (state.on_event) {
    fail(ErrorCode::invalid_argument,
         "the events of this request go to its on_event; leave that out to read them here");
  }
  std::unique_lock lock(state.mutex);
  const auto ready = [&] { return !state.events.empty() || state.open_choices == 0; };
  if (time == std::chrono::steady_clock::time_point::max()) {
    state.changed.wait(lock, ready);
  } else {
    state.changed.wait_until(lock, time, ready);
  }
  if (state.events.empty()) return std::nullopt;
  Event event = std::move(state.events.front());
  state.events.pop_front();
  return event;
}

bool RequestHandle::is_done() const {
  const State& state = state_or_refuse(state_);
  const std::lock_guard lock(state.mutex);
  return state.open_choices == 0 && state.events.empty();
}

void add_event(const Event& event, bool wants_logprobs, GenerateResult& result,
               std::optional<Error>& error) {
  switch (event.kind) {
    case Event::Kind::token:
      result.ids.push_back(event.token.sampled.token.id);
      if (wants_logprobs) result.sampled.push_back(event.token.sampled);
      result.text += event.token.text;
      break;
    case Event::Kind::finished:
      result.reason = event.reason;
      result.text += event.token.text;
      result.prompt_tokens = event.usage.prompt_tokens;
      result.first_seconds = event.usage.first_seconds;
      result.prefill_seconds = event.usage.first_seconds;
      result.decode_seconds = event.usage.total_seconds - event.usage.first_seconds;
      break;
    case Event::Kind::failed:
      if (!error) error.emplace(event.code, event.message);
      break;
  }
}

std::vector<GenerateResult> RequestHandle::wait() {
  std::vector<GenerateResult> results(static_cast<std::size_t>(state_or_refuse(state_).choices));
  std::optional<Error> error;
  while (std::optional<Event> event = next()) {
    add_event(*event, state_->wants_logprobs, results[static_cast<std::size_t>(event->choice)],
              error);
  }
  if (error) throw *error;
  return results;
}

}  // namespace tessera
