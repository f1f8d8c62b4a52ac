// Scheduler::plan: the rows and the pages of one step.
#include <algorithm>
#include <utility>

#include "engine/scheduler.h"

namespace tessera::engine {

const Plan& Scheduler::plan(const PoolView& pool, std::int64_t chunk_tokens) {
  ++steps_;
  plan_.preempted.clear();
  plan_.items.clear();
  plan_.exhausted.reset();
  promised_ = rows_ = 0;
  for (const Slot slot : running_) sequences_[slot].item = -1;

  plan_streams(pool);
  std::int64_t rows = options_.max_step_tokens - rows_;
  if (rows_ > 0) rows = std::min(rows, chunk_tokens);
  plan_prompts(pool, rows);
  plan_drafts(pool);

  std::erase_if(plan_.items, [](const StepItem& item) { return item.tokens == 0; });
  return plan_;
}

// In order of merit. Whoever lacks pages takes them from the end of running_, so a sequence that
// has its item loses it only to a better prompt.
void Scheduler::plan_streams(const PoolView& pool) {
  for (std::size_t i = 0; i < running_.size(); ++i) {
    const Slot slot = running_[i];
    Sequence& s = sequences_[slot];
    if (s.pending() != 1) continue;
    owed_ -= std::exchange(s.owed, 0);
    const StepCost cost = make_room(slot, 1, pool);
    if (cost.tokens > 0) {
      add_item(slot, cost);
    } else if (running_.size() > 1) {
      preempt(slot, pool);
    } else {
      plan_.exhausted = s.id;
    }
  }
}

void Scheduler::plan_prompts(const PoolView& pool, std::int64_t rows) {
  for (std::size_t i = 0; i < running_.size() && rows > 0; ++i) {
    const Slot slot = running_[i];
    Sequence& s = sequences_[slot];
    if (s.pending() <= 1) continue;
    const StepCost cost = make_room(slot, std::min(s.pending(), rows), pool);
    if (cost.tokens > 0) {
      const std::int64_t paid = std::min(s.owed, cost.pages);
      s.owed -= paid;
      owed_ -= paid;
      rows -= cost.tokens;
      add_item(slot, cost);
    } else if (running_.size() == 1) {
      plan_.exhausted = s.id;
    }  // otherwise it keeps what it has read, and waits for a page or for being preempted
  }
}

// Drafts are a bet: they have the rows and pages that are left, and leave every sequence a page for
// the next step.
void Scheduler::plan_drafts(const PoolView& pool) {
  for (const Slot slot : running_) {
    Sequence& s = sequences_[slot];
    const std::int64_t rows = std::min(s.drafted, options_.max_step_tokens - rows_);
    if (s.item < 0 || s.pending() != 1 || rows < 1) continue;
    const auto reserve = static_cast<std::int64_t>(running_.size());
    const std::int64_t room = pool.free_pages() - promised_ + s.planned - reserve;
    const StepCost cost = fit(s.id, 1 + rows, room, pool);
    StepItem& item = plan_.items[static_cast<std::size_t>(s.item)];
    if (cost.tokens <= item.tokens) continue;
    rows_ += cost.tokens - std::exchange(item.tokens, cost.tokens);
    promised_ += cost.pages - std::exchange(s.planned, cost.pages);
  }
}

// The largest part of the next `wanted` tokens that takes no more than `room` pages.
StepCost Scheduler::fit(RequestId id, std::int64_t wanted, std::int64_t room,
                        const PoolView& pool) const {
  StepCost cost = pool.next_step(id, wanted);
  if (cost.pages <= room) return cost;
  StepCost best;
  std::int64_t too_many = cost.tokens;
  for (std::int64_t enough = 0; too_many - enough > 1;) {
    const std::int64_t middle = enough + (too_many - enough) / 2;
    cost = pool.next_step(id, middle);
    if (cost.pages <= room) {
      enough = middle;
      best = cost;
    } else {
      too_many = middle;
    }
  }
  return best;
}

// Preempts from the end of running_ until one token of `slot` fits, and gives it what fits then.
// No tokens if `slot` itself is at the end.
StepCost Scheduler::make_room(Slot slot, std::int64_t wanted, const PoolView& pool) {
  const RequestId id = sequences_[slot].id;
  for (;;) {
    const StepCost cost = fit(id, wanted, pool.free_pages() - promised_, pool);
    if (cost.tokens > 0 || running_.back() == slot) return cost;
    preempt(running_.back(), pool);
  }
}

void Scheduler::add_item(Slot slot, StepCost cost) {
  Sequence& s = sequences_[slot];
  s.item = static_cast<std::int64_t>(plan_.items.size());
  s.planned = cost.pages;
  plan_.items.push_back({s.id, cost.tokens, cost.tokens >= s.pending()});
  promised_ += cost.pages;
  rows_ += cost.tokens;
}

void Scheduler::preempt(Slot slot, const PoolView& pool) {
  Sequence& s = sequences_[slot];
  if (s.item >= 0) {
    StepItem& item = plan_.items[static_cast<std::size_t>(s.item)];
    promised_ -= s.planned;
    rows_ -= std::exchange(item.tokens, 0);
  }
  stop(slot);
  pool.release(s.id);
  s.stored = s.drafted = 0;
  enqueue(slot);
  plan_.preempted.push_back(s.id);
  ++preemptions_;
}

}  // namespace tessera::engine
