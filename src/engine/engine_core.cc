#include "engine/engine_core.h"

#include <algorithm>
#include <new>
#include <utility>

#include "core/checked.h"
#include "core/fail.h"
#include "core/traced_work.h"
#include "engine/engine_limits.h"
#include "engine/warm_up.h"

namespace tessera::engine {

Error error_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return {ErrorCode::out_of_memory, "there is no memory left for this step"};
  } catch (const std::exception& error) {
    return {ErrorCode::device, error.what()};
  } catch (...) {
    return {ErrorCode::device, "a step has thrown something that is no std::exception"};
  }
}

EngineCore::EngineCore(Context& ctx, const Model& model, const EngineOptions& options)
    : ctx_(ctx),
      model_(model),
      options_(complete_options(options, model)),
      own_pool_(model.make_pool(ctx, pool_request(options_, ctx))),
      own_batch_(std::make_unique<CacheBatch>(ctx, *own_pool_, batch_limits(options_, ctx))),
      pool_(*own_pool_),
      batch_(*own_batch_),
      scheduler_({.max_sequences = options_.max_sequences,
                  .max_step_tokens = options_.max_step_tokens,
                  .total_pages = pool_.options().pages}),
      runner_(ctx, model, most_logits(options_)),
      speculator_(make_speculator(ctx, model, options_.speculation,
                                  {.context = options_.context,
                                   .max_sequences = options_.max_sequences,
                                   .max_step_tokens = options_.max_step_tokens})),
      pacer_(options_.max_step_tokens) {
  options_.pages = pool_.options().pages;
  options_.cache_dtype = pool_.options().dtype;
  if (options_.warm_up) warm_up(ctx_, pool_, batch_, runner_, options_);
}

EngineCore::EngineCore(Context& ctx, const Model& model, KvCache& cache)
    : ctx_(ctx),
      model_(model),
      options_(options_of(cache)),
      pool_(cache.pool()),
      batch_(cache.batch()),
      scheduler_({.max_sequences = 1,
                  .max_step_tokens = options_.max_step_tokens,
                  .total_pages = options_.pages}),
      runner_((model.reserve_workspace(ctx, cache.options(), 1), ctx), model, 1),
      pacer_(options_.max_step_tokens) {}

// ---- requests ----------------------------------------------------------------------------------

Demand EngineCore::demand_of(const CachePolicy& policy, std::int64_t prompt_tokens,
                             const GenerateOptions& options, std::int64_t n) const {
  // The last token that is drawn is never stored.
  const std::int64_t answer = options.max_tokens < 0 ? 1 : options.max_tokens;
  const std::int64_t tokens = std::min(checked_add(prompt_tokens, answer), options_.context);
  return {.prompt_tokens = prompt_tokens,
          .pages = CacheSequence::max_pages(policy, tokens, options_.max_step_tokens,
                                            options_.page_size),
          .forks = n - 1};
}

void EngineCore::check_fits(const CachePolicy& policy, std::int64_t prompt_tokens,
                            const GenerateOptions& options, std::int64_t n) const {
  model_.check_policy(policy);
  if (n < 1 || n > options_.max_sequences) {
    tessera::fail(ErrorCode::invalid_argument,
                  "n is {}; it must be from 1 to {}, the sequences that run at the same time", n,
                  options_.max_sequences);
  }
  if (policy.kind == CachePolicy::Kind::full && prompt_tokens > options_.context) {
    tessera::fail(ErrorCode::invalid_argument,
                  "the prompt has {} tokens, but a sequence here holds at most {}: shorten it, "
                  "raise the context, or use attention sinks or a window",
                  prompt_tokens, options_.context);
  }
  const std::int64_t pages = demand_of(policy, prompt_tokens, options, n).pages;
  const std::int64_t most = std::min(options_.pages, sequence_pages(options_));
  if (pages > most) {
    tessera::fail(ErrorCode::invalid_argument,
                  "the request needs up to {} pages of {} tokens, but a sequence here has at most "
                  "{}: ask for fewer tokens or a smaller window",
                  pages, options_.page_size, most);
  }
}

void EngineCore::add(std::unique_ptr<Choice> choice) {
  const RequestId id = choice->id = ++last_id_;
  const auto n = static_cast<std::int64_t>(choice->siblings.size()) + 1;
  Demand demand =
      demand_of(choice->policy, std::ssize(choice->ids), choice->generation.options(), n);
  demand.priority = choice->priority;
  scheduler_.submit(id, demand);
  choices_.emplace(id, std::move(choice));
  count_waiting();
}

bool EngineCore::fuses_layers(std::int64_t stored) {
  CacheSequence sequence(pool_, CachePolicy::full(), options_.context, options_.max_step_tokens);
  sequence.skip(stored);
  const std::int32_t id = 0;
  const CacheBatch::Part part{.sequence = &sequence, .ids = {&id, 1}, .logit_rows = 1};
  const bool fuses = model_.fuses_layers(ctx_, batch_.step(ctx_, {&part, 1}));
  batch_.forget(sequence);
  return fuses;
}

// ---- what the scheduler asks -------------------------------------------------------------------

std::int64_t EngineCore::pages_to_store(const Choice& choice, std::int64_t tokens) const {
  if (!choice.sequence) {
    return CacheSequence::max_pages(choice.policy, std::min(tokens, options_.context),
                                    options_.max_step_tokens, options_.page_size);
  }
  const CacheSequence& sequence = *choice.sequence;
  if (choice.policy.kind == CachePolicy::Kind::full) return sequence.pages_for(tokens);
  // A window may give pages back and take others on the way; it never holds more than this.
  const std::int64_t most = CacheSequence::max_pages(choice.policy, options_.context,
                                                     options_.max_step_tokens, options_.page_size);
  return std::max<std::int64_t>(most - sequence.pages(), 0);
}

// ---- a step ------------------------------------------------------------------------------------

bool EngineCore::step() {
  TracedWork scheduling(ctx_.trace(), "schedule");
  end_cancelled_and_late();
  const auto free_pages = [&] { return pool_.free_pages(); };
  const auto next_step = [&](RequestId id, std::int64_t wanted) {
    const CacheSequence& sequence = *at(id).sequence;
    const std::int64_t tokens = sequence.step_size(wanted);
    return StepCost{tokens, sequence.pages_for(tokens)};
  };
  const auto to_store = [&](RequestId id, std::int64_t tokens) {
    return pages_to_store(at(id), tokens);
  };
  const auto release = [&](RequestId id) { at(id).sequence.reset(); };
  const PoolView view{free_pages, next_step, to_store, release};

  admit_waiting(view);
  if (speculator_) {  // a draft model has ops of its own
    scheduling.end();
    step_begin_ = Clock::now();
    guess_ahead();
    scheduling.begin("schedule");
  }
  const Plan& plan = scheduler_.plan(view, pacer_.chunk_tokens());
  count_waiting();
  if (plan.items.empty()) {
    const bool did_something = before_.is_up || plan.exhausted;
    scheduling.end();
    land();
    if (plan.exhausted && choices_.contains(*plan.exhausted)) {
      Choice& choice = at(*plan.exhausted);
      finish(choice, StopReason::context_full, choice.generation.end(StopReason::context_full));
    }
    return did_something;
  }
  collect(plan);
  const bool is_ahead = launch(scheduling);
  land();
  if (!now_.is_up) return true;  // the launch failed
  batch_.commit();
  if (is_ahead) {
    take_off();
  } else {
    draw_and_take();
  }
  return true;
}

// Requests in a long queue are looked at now and then, all others before every step.
void EngineCore::end_cancelled_and_late() {
  constexpr std::size_t kManyChoices = 256;
  constexpr std::int64_t kEvery = 16;
  if (choices_.size() > kManyChoices && ++polls_ % kEvery != 0) {
    scheduler_.list_running(polled_);
  } else {
    polled_.clear();
    for (const auto& entry : choices_) polled_.push_back(entry.first);
  }
  const Clock::time_point now = Clock::now();
  for (const RequestId id : polled_) {
    Choice& choice = at(id);
    // A stream ends with its next token, which brings the text that was held back.
    const bool streams = choice.sequence && choice.usage.generated_tokens > 0;
    if (choice.state->cancelled || (!streams && choice.generation.is_cancelled())) {
      finish(choice, StopReason::cancelled, choice.generation.end(StopReason::cancelled));
    } else if (now >= choice.deadline) {
      finish(choice, StopReason::deadline, choice.generation.end(StopReason::deadline));
    }
  }
}

void EngineCore::admit_waiting(const PoolView& view) {
  while (const std::optional<RequestId> id = scheduler_.next_admission(view)) {
    Choice& choice = at(*id);
    std::int64_t cached = 0;
    if (!choice.sequence) {  // one that was lent goes on where it is
      choice.sequence.emplace(pool_, choice.policy, options_.context, options_.max_step_tokens);
      if (choice.use_prefix_cache) cached = choice.sequence->find_prefix(choice.ids);
    }
    if (!choice.started) {
      choice.started = true;
      choice.usage.cached_tokens = cached;
      choice.usage.queued_seconds = seconds_between(choice.submitted, Clock::now());
      stats_.prompt_tokens += choice.usage.prompt_tokens;
      stats_.cached_tokens += cached;
    }
    scheduler_.admit(*id, cached, view);
  }
}

void EngineCore::collect(const Plan& plan) {
  parts_.clear();
  in_step_.clear();
  now_.drawing.clear();
  now_.draws.clear();
  now_.streams = now_.stream_tokens = now_.prompt_tokens = 0;
  now_.launched = Clock::now();
  for (const StepItem& item : plan.items) {
    Choice& choice = at(item.id);
    const std::int64_t stored = choice.stored();
    const std::int64_t drafts =
        std::max<std::int64_t>(stored + item.tokens - std::ssize(choice.ids), 0);
    choice.drafts.resize(static_cast<std::size_t>(drafts));
    choice.ids.insert(choice.ids.end(), choice.drafts.begin(), choice.drafts.end());
    const bool streams = item.wants_logits && item.tokens == 1 + drafts;
    if (streams) ++now_.streams;
    (streams ? now_.stream_tokens : now_.prompt_tokens) += item.tokens;
    parts_.push_back({.sequence = &*choice.sequence,
                      .ids = std::span(choice.ids)
                                 .subspan(static_cast<std::size_t>(stored),
                                          static_cast<std::size_t>(item.tokens)),
                      .logit_rows = item.wants_logits ? 1 + drafts : 0,
                      .is_prompt = !streams || stored < choice.usage.prompt_tokens});
    in_step_.push_back(&choice);
  }
}

void EngineCore::add_draws(const CacheStep& step) {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].logit_rows == 0) continue;
    Choice& choice = *in_step_[i];
    choice.ids.resize(choice.ids.size() - choice.drafts.size());  // drawn again, if they are right
    const auto draw_for = [&](Choice& from) {
      now_.draws.push_back({.sampler = &from.generation.sampler(),
                            .stream = from.id,
                            .ahead = static_cast<std::uint64_t>(from.in_flight),
                            .row = step.logit_begin[i],
                            .drafts = from.drafts,
                            .top_logprobs = from.generation.options().top_logprobs,
                            .drawn = &from.drawn});
      now_.drawing.push_back(&from);
    };
    draw_for(choice);
    for (Choice* sibling : fork_siblings(choice)) draw_for(*sibling);
  }
}

// The prompt has been read: its other choices begin here, with the same pages and the same logits.
std::vector<Choice*> EngineCore::fork_siblings(Choice& leader) {
  std::vector<Choice*> forks;
  for (std::unique_ptr<Choice>& sibling : leader.siblings) {
    sibling->id = ++last_id_;
    sibling->sequence.emplace(leader.sequence->fork());
    sibling->usage = leader.usage;
    sibling->started = true;
    scheduler_.admit_fork(sibling->id, leader.id);
    forks.push_back(sibling.get());
    choices_.emplace(sibling->id, std::move(sibling));
  }
  leader.siblings.clear();
  return forks;
}

// ---- the end of a choice -----------------------------------------------------------------------

void EngineCore::finish(Choice& choice, StopReason reason, std::string text) {
  (reason == StopReason::cancelled ? stats_.cancelled : stats_.finished) += choice.with_siblings();
  Event event;
  event.kind = Event::Kind::finished;
  event.reason = reason;
  event.token.text = std::move(text);
  end(choice, std::move(event));
}

void EngineCore::fail(Choice& choice, const Error& error) {
  stats_.failed += choice.with_siblings();
  Event event;
  event.kind = Event::Kind::failed;
  event.code = error.code();
  event.message = error.what();
  end(choice, std::move(event));
}

// Choices that have not begun end with the first one.
void EngineCore::end(Choice& choice, Event event) {
  choice.usage.total_seconds = seconds_between(choice.submitted, Clock::now());
  event.usage = choice.usage;
  for (const auto& sibling : choice.siblings) {
    event.choice = sibling->index;
    sibling->state->deliver(event);
  }
  event.choice = choice.index;
  choice.state->deliver(std::move(event));
  scheduler_.remove(choice.id);
  if (speculator_) speculator_->forget(choice.id);
  for (Flight* flight : {&now_, &before_}) {
    for (std::size_t i = 0; i < flight->drawing.size(); ++i) {
      if (flight->drawing[i] != &choice) continue;
      flight->drawing[i] = nullptr;
      flight->draws[i].sampler = nullptr;
    }
  }
  std::replace(in_step_.begin(), in_step_.end(), &choice, static_cast<Choice*>(nullptr));
  if (choice.sequence) batch_.forget(*choice.sequence);
  choices_.erase(choice.id);
  count_waiting();
}

void EngineCore::end_all(const Error* error) {
  while (!choices_.empty()) {
    Choice& choice = *choices_.begin()->second;
    if (error != nullptr) {
      fail(choice, *error);
    } else {
      finish(choice, StopReason::cancelled, choice.generation.end(StopReason::cancelled));
    }
  }
}

EngineStats EngineCore::stats() const {
  EngineStats stats = stats_;
  const SchedulerCounts counts = scheduler_.counts();
  stats.running = counts.running;
  stats.waiting = counts.waiting;
  stats.preemptions = counts.preemptions;
  stats.pages = options_.pages;
  stats.pages_used = pool_.used_pages();
  return stats;
}

}  // namespace tessera::engine
