// Speculation in a step: what is guessed for its streams.
#include <algorithm>

#include "engine/engine_core.h"

namespace tessera::engine {

// Guesses the next tokens of the streams, as many for each as are likely to pay.
void EngineCore::guess_ahead() {
  std::erase_if(streams_, [&](RequestId id) { return !choices_.contains(id) || !at(id).sequence; });
  const double cost = row_cost_.in_tokens(std::ssize(streams_), speculator_->seconds_per_guess());
  const auto wanted = [&](Choice& choice, std::int64_t room) -> std::int64_t {
    if (!options_.speculation.adaptive) return room;
    return guess_gain_.allows() ? choice.draft_length.next(cost, room) : 0;
  };
  guesses_.clear();
  for (const RequestId id : streams_) {
    Choice& choice = at(id);
    const GenerateOptions& options = choice.generation.options();
    std::int64_t room = options_.speculation.max_tokens;
    // The last token of an answer need not be guessed, and all guesses must fit into the cache.
    if (options.max_tokens > 0) {
      room = std::min(room, options.max_tokens - choice.usage.generated_tokens - 1);
    }
    if (choice.policy.kind == CachePolicy::Kind::full) {
      room = std::min(room, options_.context - choice.before - std::ssize(choice.ids));
    }
    room = std::max<std::int64_t>(room, 0);
    guesses_.push_back(
        {.id = id, .ids = choice.ids, .count = wanted(choice, room), .drafts = &choice.drafts});
  }
  try {
    speculator_->guess(guesses_);
  } catch (...) {
    if (!ctx_.lost().empty()) throw;  // the device itself is gone, for all requests
    drop_guesses();
  }
  for (const Guess& guess : guesses_) scheduler_.draft(guess.id, std::ssize(*guess.drafts));
}

// Guessing has failed, so this step has no guesses. What was read for them is not to be trusted. As
// far as lengths adapt, a stream soon asks only now and then.
void EngineCore::drop_guesses() {
  ++stats_.failed_guesses;
  for (const Guess& guess : guesses_) {
    guess.drafts->clear();
    speculator_->forget(guess.id);
    if (guess.count > 0) at(guess.id).draft_length.learn(1, 0);
  }
}

}  // namespace tessera::engine
