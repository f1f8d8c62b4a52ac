#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "core/fail.h"

namespace tessera::engine {
namespace {

void require_option(const char* name, std::int64_t value, std::int64_t least) {
  if (value >= least) return;
  fail(ErrorCode::invalid_argument, "Scheduler: {} is {}; it must be at least {}", name, value,
       least);
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options) : options_(options) {
  require_option("max_sequences", options.max_sequences, 1);
  // Every stream has its row in every step, and a prompt beside them at least one.
  require_option("max_step_tokens", options.max_step_tokens, options.max_sequences);
  require_option("total_pages", options.total_pages, 1);
  require_option("max_waiting_steps", options.max_waiting_steps, 0);
  constexpr std::int64_t kForEver = INT64_MAX / 2;  // steps can be added to it
  options_.max_waiting_steps = std::min(options.max_waiting_steps, kForEver);
}

void Scheduler::submit(RequestId id, const Demand& demand) {
  if (demand.prompt_tokens < 1) {
    fail(ErrorCode::invalid_argument, "a prompt of {} tokens cannot run; give at least one",
         demand.prompt_tokens);
  }
  if (demand.pages > options_.total_pages) {
    fail(ErrorCode::invalid_argument,
         "the request needs {} pages of keys and values and the pool has {}; shorten the prompt or "
         "the answer, give it a window, or make the pool larger",
         demand.pages, options_.total_pages);
  }
  if (demand.forks < 0 || demand.forks >= options_.max_sequences) {
    fail(ErrorCode::invalid_argument,
         "the request asks for {} answers; an engine for {} sequences gives 1 to {}",
         demand.forks + 1, options_.max_sequences, options_.max_sequences);
  }
  const Slot slot = take_slot(id);
  Sequence& s = sequences_[slot];
  s.priority = demand.priority;
  s.ticket = s.serial;
  s.patience = options_.max_waiting_steps;
  s.known = demand.prompt_tokens;
  s.forks = demand.forks;
  enqueue(slot);
}

void Scheduler::remove(RequestId id) {
  const Slot slot = find(id);
  if (sequences_[slot].running) {
    stop(slot);
  } else {
    dequeue(slot);
  }
  slot_of_.erase(id);
  free_slots_.push_back(slot);
}

std::optional<RequestId> Scheduler::next_admission(const PoolView& pool) const {
  if (by_priority_.empty()) return std::nullopt;
  const Sequence& best = sequences_[best_waiting()];
  const std::int64_t places = places_ + 1 + best.forks;
  if (places > options_.max_sequences) return std::nullopt;
  // The whole prompt, so that it is not read in vain; what prompts that are being read will still
  // take; and a page for each sequence, so that streams do not run dry at once. Alone in the pool,
  // a request starts in any case.
  std::int64_t pages = pool.to_store(best.id, best.known);
  pages = running_.empty() ? std::min(pages, options_.total_pages) : pages + owed_ + places;
  if (pages > pool.free_pages()) return std::nullopt;
  return best.id;
}

void Scheduler::admit(RequestId id, std::int64_t cached_tokens, const PoolView& pool) {
  const Slot slot = find(id);
  Sequence& s = sequences_[slot];
  if (s.running || places_ + 1 + s.forks > options_.max_sequences) {
    fail(ErrorCode::invalid_argument, "request {} cannot be admitted: it {}", id,
         s.running ? "runs already" : "has no place among those that run");
  }
  if (cached_tokens < 0 || cached_tokens >= s.known) {
    fail(ErrorCode::invalid_argument,
         "request {} has {} tokens; {} of them cannot be cached, 0 to {} can", id, s.known,
         cached_tokens, s.known - 1);
  }
  dequeue(slot);
  s.overdue = s.due <= steps_;
  s.patience = std::max<std::int64_t>(s.due - steps_, 0);
  s.stored = cached_tokens;
  s.owed = s.pending() > 1 ? pool.to_store(id, s.pending()) : 0;
  start(slot);
}

void Scheduler::admit_fork(RequestId child, RequestId parent) {
  Sequence& kept = running(parent);
  if (kept.forks < 1) {
    fail(ErrorCode::invalid_argument,
         "request {} has no place left for a fork; its Demand must count all of them", parent);
  }
  const Slot slot = take_slot(child);  // moves the parent if the vector grows
  Sequence& from = running(parent);
  Sequence& to = sequences_[slot];
  const std::int64_t serial = to.serial;
  to = from;
  to.id = child;
  to.serial = serial;
  to.forks = to.owed = to.drafted = 0;
  --from.forks;
  --places_;
  start(slot);
}

void Scheduler::draft(RequestId id, std::int64_t tokens) {
  running(id).drafted = std::max<std::int64_t>(tokens, 0);
}

void Scheduler::advance(RequestId id, std::int64_t stored_tokens, std::int64_t known_tokens) {
  Sequence& s = running(id);
  if (stored_tokens < 0 || stored_tokens > known_tokens) {
    fail(ErrorCode::invalid_argument, "request {} has {} tokens; {} of them cannot be stored", id,
         known_tokens, stored_tokens);
  }
  s.stored = stored_tokens;
  s.known = known_tokens;
  s.drafted = 0;
}

SchedulerCounts Scheduler::counts() const {
  return {static_cast<std::int64_t>(running_.size()),
          static_cast<std::int64_t>(by_priority_.size()), steps_, preemptions_};
}

bool Scheduler::runs(RequestId id) const {
  const auto found = slot_of_.find(id);
  return found != slot_of_.end() && sequences_[found->second].running;
}

void Scheduler::list_running(std::vector<RequestId>& ids) const {
  ids.clear();
  for (const Slot slot : running_) ids.push_back(sequences_[slot].id);
}

Scheduler::Slot Scheduler::find(RequestId id) const {
  const auto found = slot_of_.find(id);
  if (found == slot_of_.end()) {
    fail(ErrorCode::invalid_argument, "request {} is not known to the scheduler", id);
  }
  return found->second;
}

Scheduler::Sequence& Scheduler::running(RequestId id) {
  Sequence& s = sequences_[find(id)];
  if (!s.running) fail(ErrorCode::invalid_argument, "request {} does not run", id);
  return s;
}

Scheduler::Slot Scheduler::take_slot(RequestId id) {
  const Slot slot = free_slots_.empty() ? static_cast<Slot>(sequences_.size()) : free_slots_.back();
  if (!slot_of_.emplace(id, slot).second) {
    fail(ErrorCode::invalid_argument, "request {} is known to the scheduler already", id);
  }
  if (free_slots_.empty()) {
    sequences_.emplace_back();
  } else {
    free_slots_.pop_back();
  }
  sequences_[slot] = Sequence{};
  sequences_[slot].id = id;
  sequences_[slot].serial = serial_++;
  return slot;
}

// ---- the queue ----

Scheduler::QueueKey Scheduler::by_priority(Slot slot) const {
  const Sequence& s = sequences_[slot];
  return {-static_cast<std::int64_t>(s.priority), s.ticket, s.serial, slot};
}

Scheduler::QueueKey Scheduler::by_due(Slot slot) const {
  const Sequence& s = sequences_[slot];
  return {s.due, s.serial, 0, slot};
}

void Scheduler::enqueue(Slot slot) {
  Sequence& s = sequences_[slot];
  if (!s.overdue) s.due = steps_ + s.patience;
  const auto insert = [this](Queue& queue, const QueueKey& place) {
    if (spare_.empty()) {
      queue.insert(place);
    } else {
      spare_.back().value() = place;
      queue.insert(std::move(spare_.back()));
      spare_.pop_back();
    }
  };
  insert(by_priority_, by_priority(slot));
  insert(by_due_, by_due(slot));
}

void Scheduler::dequeue(Slot slot) {
  spare_.push_back(by_priority_.extract(by_priority(slot)));
  spare_.push_back(by_due_.extract(by_due(slot)));
}

Scheduler::Slot Scheduler::best_waiting() const {
  const QueueKey& longest = *by_due_.begin();
  return longest.major <= steps_ ? longest.slot : by_priority_.begin()->slot;
}

// ---- those that run ----

bool Scheduler::better(Slot a, Slot b) const {
  const Sequence& x = sequences_[a];
  const Sequence& y = sequences_[b];
  if (x.overdue != y.overdue) return x.overdue;
  return x.overdue ? by_due(a) < by_due(b) : by_priority(a) < by_priority(b);
}

void Scheduler::start(Slot slot) {
  Sequence& s = sequences_[slot];
  s.running = true;
  s.item = -1;
  places_ += 1 + s.forks;
  owed_ += s.owed;
  const auto place = std::upper_bound(running_.begin(), running_.end(), slot,
                                      [this](Slot a, Slot b) { return better(a, b); });
  running_.insert(place, slot);
}

void Scheduler::stop(Slot slot) {
  Sequence& s = sequences_[slot];
  s.running = false;
  places_ -= 1 + s.forks;
  owed_ -= std::exchange(s.owed, 0);
  running_.erase(std::find(running_.begin(), running_.end(), slot));
}

}  // namespace tessera::engine
