// What a request's handle and the engine's thread share.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>

#include "tessera/engine.h"

namespace tessera {

struct RequestHandle::State {
  State(std::uint64_t id_, std::int64_t choices_, bool wants_logprobs_,
        std::function<void(const Event&)> on_event_)
      : id(id_),
        choices(choices_),
        wants_logprobs(wants_logprobs_),
        on_event(std::move(on_event_)),
        open_choices(choices_) {}

  const std::uint64_t id;
  const std::int64_t choices;
  const bool wants_logprobs;
  const std::function<void(const Event&)> on_event;
  std::atomic<bool> cancelled = false;

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<Event> events;
  std::int64_t open_choices;  // that have not ended

  // Hands an event to the caller. Called on the engine's thread.
  void deliver(Event event);
};

// Adds an event of a choice to its result; an error to the first one there is.
void add_event(const Event& event, bool wants_logprobs, GenerateResult& result,
               std::optional<Error>& error);

}  // namespace tessera
