// Decides what runs in the next step of an engine: which requests start, how many tokens of each
// sequence go through the model, and who gives its pages back when there are too few. It knows no
// model, no clock and no pages: it counts tokens and steps, and asks a PoolView about pages.
//
//   submit --> queue --next_admission, admit--> running --remove--> gone
//                ^                                 |
//                +--------- preempted -------------+      its tokens so far become its prompt
//
//   step:  while (auto id = next_admission(pool)) admit(*id, ...);
//          plan(pool, chunk);  run the model;  advance(), admit_fork(), remove()
//
// docs/design/scheduler.md has the rules, and why none of them can starve or stall a request.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "core/function_ref.h"

namespace tessera::engine {

using RequestId = std::uint64_t;

struct SchedulerOptions {
  std::int64_t max_sequences = 64;       // that run at the same time
  std::int64_t max_step_tokens = 512;    // rows of one step; at least max_sequences
  std::int64_t total_pages = 0;          // what the pool can give when nobody runs
  std::int64_t max_waiting_steps = 256;  // that a request waits before it comes ahead of every
                                         // priority; 0: first come, first served
};

// What a request asks for.
struct Demand {
  std::int64_t prompt_tokens = 0;
  // The most pages that it ever holds when it runs alone. For an answer without a bound: those of
  // the prompt and its first token (see Plan::exhausted).
  std::int64_t pages = 0;
  int priority = 0;        // larger first
  std::int64_t forks = 0;  // sequences that admit_fork() will add: they have their places among the
                           // max_sequences from the admission of this one on
};

// The next step of a sequence: the tokens it can take at once (sinks that are about to roll take
// fewer than wanted), and the pages that the pool has to give for them.
struct StepCost {
  std::int64_t tokens = 0;
  std::int64_t pages = 0;
};

// What the scheduler asks about pages.
struct PoolView {
  // That the pool can give now, cached pages that nobody holds included.
  FunctionRef<std::int64_t()> free_pages;
  // Of a running sequence: one token at least. More tokens wanted never cost fewer pages. The
  // pages are fewer than none if a window gives back more than it takes.
  FunctionRef<StepCost(RequestId, std::int64_t wanted)> next_step;
  // The pages that the pool has to give, at most, until the next `tokens` tokens of the sequence
  // are stored in steps of any size. For a request in the queue these are its first tokens, and
  // the pages of a prefix hit count if nobody else holds them.
  FunctionRef<std::int64_t(RequestId, std::int64_t tokens)> to_store;
  // This sequence is preempted: its pages go back to the pool at once.
  FunctionRef<void(RequestId)> release;
};

// The next `tokens` tokens of a sequence go through the model. For a stream, those after the first
// are drafts. wants_logits: they end with the last token the sequence has.
struct StepItem {
  RequestId id = 0;
  std::int64_t tokens = 0;
  bool wants_logits = false;
};

struct Plan {
  std::vector<RequestId> preempted;  // they are back in the queue, their pages in the pool
  std::vector<StepItem> items;       // streams, then prompts, both by merit
  // Runs alone, and the whole pool is not enough for its next token: the caller has to end it.
  std::optional<RequestId> exhausted;
};

struct SchedulerCounts {
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  std::int64_t steps = 0;        // plans made
  std::int64_t preemptions = 0;  // since the beginning
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options);

  // Puts a request at the end of its priority's queue. Refuses what can never run.
  void submit(RequestId id, const Demand& demand);
  // Finished, failed or cancelled, in any state. The caller gives its pages back.
  void remove(RequestId id);

  // The request that may start now. None if there is no place or no room for the best one in the
  // queue: nobody overtakes it.
  std::optional<RequestId> next_admission(const PoolView& pool) const;
  // It runs from now on; its first `cached_tokens` tokens (prefix hit, fewer than it has) have
  // their pages. `pool` answers for it as for a running sequence.
  void admit(RequestId id, std::int64_t cached_tokens, const PoolView& pool);
  // A new sequence that shares the pages of `parent` and has its tokens. It takes one of the places
  // that the parent's Demand::forks kept, and never waits.
  void admit_fork(RequestId child, RequestId parent);

  // How many drafted tokens the next step of a stream may verify. Holds until advance().
  void draft(RequestId id, std::int64_t tokens);
  // The next step. While streams run, prompts have at most `chunk_tokens` rows of it together: a
  // caller who passes 0 for ever stops them.
  // Valid until the next call.
  const Plan& plan(const PoolView& pool, std::int64_t chunk_tokens);
  // After a step: how many tokens of a running sequence are stored (have keys), and how many it
  // has, prompt and drawn. A sequence that has none left to store is not planned.
  void advance(RequestId id, std::int64_t stored_tokens, std::int64_t known_tokens);

  SchedulerCounts counts() const;
  bool runs(RequestId id) const;
  // Puts those that run into `ids`, the best first.
  void list_running(std::vector<RequestId>& ids) const;
  bool empty() const { return slot_of_.empty(); }

 private:
  using Slot = std::uint32_t;

  struct Sequence {
    RequestId id = 0;
    int priority = 0;
    std::int64_t ticket = 0;    // order of arrival; a fork has its parent's
    std::int64_t serial = 0;    // breaks ties
    std::int64_t due = 0;       // in the queue: the step from which it is overdue
    std::int64_t patience = 0;  // running: steps in the queue until it would be overdue
    bool overdue = false;       // it was when it was admitted: comes before every priority
    bool running = false;
    std::int64_t known = 0;
    std::int64_t stored = 0;
    std::int64_t drafted = 0;
    std::int64_t forks = 0;    // places kept for forks to come
    std::int64_t owed = 0;     // pages that its prompt will still take
    std::int64_t planned = 0;  // pages that its part of the current plan takes
    std::int64_t item = -1;    // its place in the current plan
    std::int64_t pending() const { return known - stored; }
  };
  // The order of a queue: the first numbers that differ decide.
  struct QueueKey {
    std::int64_t major = 0, middle = 0, minor = 0;
    Slot slot = 0;
    bool operator<(const QueueKey& other) const {
      return std::tie(major, middle, minor, slot) <
             std::tie(other.major, other.middle, other.minor, other.slot);
    }
  };
  using Queue = std::set<QueueKey>;

  Slot find(RequestId id) const;
  Sequence& running(RequestId id);
  Slot take_slot(RequestId id);
  QueueKey by_priority(Slot slot) const;
  QueueKey by_due(Slot slot) const;
  void enqueue(Slot slot);
  void dequeue(Slot slot);
  Slot best_waiting() const;  // of a queue that is not empty
  bool better(Slot a, Slot b) const;
  void start(Slot slot);
  void stop(Slot slot);

  void preempt(Slot slot, const PoolView& pool);
  StepCost fit(RequestId id, std::int64_t wanted, std::int64_t room, const PoolView& pool) const;
  StepCost make_room(Slot slot, std::int64_t wanted, const PoolView& pool);
  void add_item(Slot slot, StepCost cost);
  void plan_streams(const PoolView& pool);
  void plan_prompts(const PoolView& pool, std::int64_t rows);
  void plan_drafts(const PoolView& pool);

  SchedulerOptions options_;
  std::vector<Sequence> sequences_;
  std::vector<Slot> free_slots_;
  std::unordered_map<RequestId, Slot> slot_of_;
  Queue by_priority_, by_due_;           // the same requests in both orders
  std::vector<Queue::node_type> spare_;  // nodes of requests that left, so that steps allocate none
  std::vector<Slot> running_;            // by merit, the best first
  std::int64_t places_ = 0;              // running, and kept for forks
  std::int64_t owed_ = 0;
  std::int64_t promised_ = 0;  // pages that the current plan takes
  std::int64_t rows_ = 0;      // of the current plan
  std::int64_t serial_ = 0, steps_ = 0, preemptions_ = 0;
  Plan plan_;
};

}  // namespace tessera::engine
