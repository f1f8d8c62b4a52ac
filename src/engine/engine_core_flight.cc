// The way of a step through the engine: launched, in flight, landed.
#include <algorithm>
#include <utility>

#include "core/fail.h"
#include "engine/engine_core.h"

namespace tessera::engine {

// ---- launch -------------------------------------------------------------------------------------

// Enqueues the pass, and the draws if they need nothing of the host; says whether they are. If that
// fails, so do all requests of the step, once the step before has landed.
bool EngineCore::launch(TracedWork& scheduling) {
  try {
    const CacheStep& step = batch_.step(ctx_, parts_);
    add_draws(step);
    scheduling.end();
    const bool is_ahead = !speculator_ && runner_.can_start(now_.draws);
    if (is_ahead) {
      runner_.start(step, now_.draws);
    } else {
      runner_.forward(step, now_.draws);
    }
    now_.is_up = true;
    stats_.pages_peak = std::max(stats_.pages_peak, pool_.used_pages());
    return is_ahead;
  } catch (...) {
    const Error error = error_of(std::current_exception());
    land();
    fail_step(error);
    return false;
  }
}

// The next step may be planned: each stream has one more token, whose name is known.
void EngineCore::take_off() {
  advance_prompts();
  for (std::size_t i = 0; i < now_.draws.size(); ++i) {
    if (now_.drawing[i] == nullptr) continue;
    Choice& choice = *now_.drawing[i];
    const std::int64_t place = std::ssize(choice.ids);
    const std::int64_t most = choice.generation.options().max_tokens;
    const bool is_last =
        !has_room(choice, place) || (most > 0 && choice.usage.generated_tokens + 1 >= most);
    choice.ids.push_back(AheadDraws::name_of(i));
    choice.in_flight = 1;
    const std::int64_t stored = choice.stored();
    scheduler_.advance(choice.id, stored, is_last ? stored : place + 1);
  }
  std::swap(now_, before_);
  now_.is_up = false;
}

// Prompts that are not through yet.
void EngineCore::advance_prompts() {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].logit_rows > 0 || in_step_[i] == nullptr) continue;
    const Choice& choice = *in_step_[i];
    scheduler_.advance(choice.id, choice.stored(), std::ssize(choice.ids));
  }
}

// ---- landing ------------------------------------------------------------------------------------

// Reads and delivers the tokens of the step before, if it is up.
void EngineCore::land() {
  if (!before_.is_up) return;
  before_.is_up = false;
  try {
    runner_.finish(before_.draws);
  } catch (...) {
    const Error error = error_of(std::current_exception());
    for (std::size_t i = 0; i < before_.drawing.size(); ++i) {
      if (before_.drawing[i] != nullptr) fail(*before_.drawing[i], error);
    }
    return;
  }
  settle(before_, &EngineCore::land_token);
}

// Hands each choice that drew its tokens, or the reason why it has none.
void EngineCore::settle(Flight& flight, void (EngineCore::*take)(Choice&)) {
  for (std::size_t i = 0; i < flight.drawing.size(); ++i) {
    if (flight.drawing[i] == nullptr) continue;
    Choice& choice = *flight.drawing[i];
    if (flight.draws[i].error) {
      fail(choice, error_of(flight.draws[i].error));
    } else {
      (this->*take)(choice);
    }
  }
  learn(flight);
}

void EngineCore::land_token(Choice& choice) {
  const Sampled sampled = choice.drawn.front();
  const std::int64_t place = std::ssize(choice.ids) - 1;
  choice.ids.back() = sampled.token.id;
  choice.in_flight = 0;
  if (choice.sequence) choice.sequence->set_id(choice.before + place, sampled.token.id);
  deliver(choice, sampled, has_room(choice, place));
}

// ---- steps that are waited for ------------------------------------------------------------------

void EngineCore::draw_and_take() {
  now_.is_up = false;
  // Whoever ended when the step before landed draws no more.
  std::erase_if(now_.draws, [](const Draw& draw) { return draw.sampler == nullptr; });
  std::erase(now_.drawing, nullptr);
  for (Draw& draw : now_.draws) draw.ahead = 0;
  try {
    runner_.draw(now_.draws);
  } catch (...) {
    return fail_step(error_of(std::current_exception()));
  }
  const TracedWork delivering(ctx_.trace(), "deliver");
  streams_.clear();
  advance_prompts();
  const std::int64_t before = stats_.generated_tokens;
  settle(now_, &EngineCore::take_drawn);
  if (!speculator_ || now_.prompt_tokens > 0) return;
  guess_gain_.learn(now_.streams, stats_.generated_tokens - before,
                    seconds_between(step_begin_, Clock::now()));
}

void EngineCore::take_drawn(Choice& choice) {
  const std::int64_t drafted = std::ssize(choice.drafts), accepted = std::ssize(choice.drawn) - 1;
  choice.draft_length.learn(drafted, accepted);
  choice.drafts.clear();
  stats_.drafted_tokens += drafted;
  stats_.accepted_tokens += accepted;
  for (const Sampled& sampled : choice.drawn) {
    const std::int64_t place = std::ssize(choice.ids);
    choice.ids.push_back(sampled.token.id);
    if (!deliver(choice, sampled, has_room(choice, place))) return;
  }
  choice.sequence->truncate(choice.before + std::ssize(choice.ids) - 1);
  scheduler_.advance(choice.id, choice.stored(), std::ssize(choice.ids));
  streams_.push_back(choice.id);
}

// ---- a token ------------------------------------------------------------------------------------

// Returns false if the choice ends with this token; it is gone then.
bool EngineCore::deliver(Choice& choice, const Sampled& sampled, bool has_room) {
  if (choice.usage.generated_tokens++ == 0) {
    choice.usage.first_seconds = seconds_between(choice.submitted, Clock::now());
  }
  ++stats_.generated_tokens;
  Event event;
  event.choice = choice.index;
  event.token = choice.generation.take(sampled, has_room);
  choice.state->deliver(std::move(event));
  const std::optional<StopReason> reason = choice.generation.reason();
  if (reason) finish(choice, *reason, {});
  return !reason;
}

// May the token in this place of its ids be stored later?
bool EngineCore::has_room(const Choice& choice, std::int64_t place) const {
  return choice.policy.kind != CachePolicy::Kind::full || choice.before + place < options_.context;
}

// Steps that overlap count from landing to landing.
void EngineCore::learn(const Flight& flight) {
  const Clock::time_point now = Clock::now();
  const double seconds = seconds_between(std::max(flight.launched, last_landing_), now);
  last_landing_ = now;
  pacer_.learn(flight.streams, flight.prompt_tokens, seconds);
  if (flight.prompt_tokens == 0) row_cost_.learn(flight.stream_tokens, seconds);
  ++stats_.steps;
  stats_.step_seconds += seconds;
}

// Whatever its sequences hold now is not to be trusted: they are dropped with their pages.
void EngineCore::fail_step(const Error& error) {
  now_.is_up = false;
  // Forks of this step draw, but have no part in it.
  for (std::vector<Choice*>* choices : {&in_step_, &now_.drawing}) {
    for (std::size_t i = 0; i < choices->size(); ++i) {
      if ((*choices)[i] != nullptr) fail(*(*choices)[i], error);
    }
  }
  if (!ctx_.lost().empty()) end_all(&error);
}

}  // namespace tessera::engine
