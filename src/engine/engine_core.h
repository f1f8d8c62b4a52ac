// The engine without its thread: requests in, and step() runs the next tokens of all of them.
//
//   add() --> Scheduler --> step(): admit, plan, preempt
//                             |  CacheBatch: pages, positions, slots of every row
//                             |  StepRunner: one pass, a drawn token for each stream
//                             v
//                           Generation of each choice --> events
//
// On a GPU, step t + 1 is launched before the tokens of step t have been read: a stream goes on
// unless its last token ended it, and where that is known only later, its row was in vain. Between
// launch and landing the token has a place among the ids of its choice, and a name in it
// (AheadDraws::name_of). Steps whose draws need the host, and all steps of the CPU, land at once.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/traced_work.h"
#include "engine/chunk_pacer.h"
#include "engine/draft_length.h"
#include "engine/generation.h"
#include "engine/guess_gain.h"
#include "engine/request_state.h"
#include "engine/scheduler.h"
#include "engine/speculator.h"
#include "engine/step_runner.h"
#include "tessera/engine.h"
#include "tessera/kv_cache.h"
#include "tessera/page_pool.h"

namespace tessera::engine {

using Clock = std::chrono::steady_clock;

// The sequence of a choice while it runs: one of the pool's, or one that was lent.
class RunningSequence {
 public:
  template <class... Args>
  void emplace(Args&&... args) {
    sequence_ = &own_.emplace(std::forward<Args>(args)...);
  }
  void lend(CacheSequence& sequence) { sequence_ = &sequence; }
  void reset() {
    sequence_ = nullptr;
    own_.reset();
  }
  explicit operator bool() const { return sequence_ != nullptr; }
  CacheSequence& operator*() const { return *sequence_; }
  CacheSequence* operator->() const { return sequence_; }

 private:
  std::optional<CacheSequence> own_;
  CacheSequence* sequence_ = nullptr;
};

// One of the texts of a request. To the scheduler it is a sequence.
struct Choice {
  Choice(const ModelConfig& config, const Tokenizer* tokenizer, const GenerateOptions& options,
         std::span<const std::int32_t> prompt)
      : ids(prompt.begin(), prompt.end()), generation(config, tokenizer, options, prompt) {}

  RequestId id = 0;
  std::shared_ptr<RequestHandle::State> state{};
  std::int64_t index = 0;  // among the request's choices
  CachePolicy policy{};
  bool use_prefix_cache = true;
  int priority = 0;
  std::vector<std::int32_t> ids;  // the prompt, and what has been drawn
  std::int64_t before = 0;        // tokens of the stream before ids, which the sequence holds
  Generation generation;
  RunningSequence sequence{};
  std::vector<std::unique_ptr<Choice>> siblings{};  // choices that begin where the prompt ends
  std::int64_t with_siblings() const { return 1 + std::ssize(siblings); }
  std::vector<std::int32_t> drafts{};  // guesses for the next tokens
  DraftLength draft_length{};
  std::vector<Sampled> drawn{};  // in this step
  std::int64_t in_flight = 0;    // tokens that have been drawn, but not read: 0 or 1
  bool started = false;
  Usage usage{};
  std::int64_t stored() const { return sequence->seen() - before; }  // of ids
  Clock::time_point submitted{}, deadline = Clock::time_point::max();
};

inline double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// A step that was launched, and whose tokens nobody has read yet.
struct Flight {
  std::vector<Draw> draws{};
  std::vector<Choice*> drawing{};  // of draws; null: it has ended
  std::int64_t streams = 0, stream_tokens = 0, prompt_tokens = 0;
  Clock::time_point launched{};
  bool is_up = false;
};

// Anything that was thrown, as an Error.
Error error_of(const std::exception_ptr& thrown);

class EngineCore {
 public:
  // Fills in the options that are 0. Reserves the pages and the scratch memory of all steps.
  EngineCore(Context& ctx, const Model& model, const EngineOptions& options);
  // Runs in the pages of a cache, for one choice at a time, to which its sequence is lent. Reserves
  // the scratch memory.
  EngineCore(Context& ctx, const Model& model, KvCache& cache);

  const EngineOptions& options() const { return options_; }
  // Throws if such a sequence can never run. May be called from any thread.
  void check_fits(const CachePolicy& policy, std::int64_t prompt_tokens,
                  const GenerateOptions& options, std::int64_t n) const;

  void add(std::unique_ptr<Choice> choice);
  // Runs one step. Returns false if there was nothing to run.
  bool step();
  bool is_idle() const { return choices_.empty(); }
  // Requests in the queue. May be called from any thread.
  std::int64_t waiting() const { return waiting_; }
  // Whether a step of one token after `stored` others runs all layers in one call:
  // Model::fuses_layers(). For profiles; nothing may be running.
  bool fuses_layers(std::int64_t stored);
  // Ends every choice: with this error, or as cancelled.
  void end_all(const Error* error);
  EngineStats stats() const;

 private:
  Choice& at(RequestId id) { return *choices_.at(id); }
  Demand demand_of(const CachePolicy& policy, std::int64_t prompt_tokens,
                   const GenerateOptions& options, std::int64_t n) const;
  std::int64_t pages_to_store(const Choice& choice, std::int64_t tokens) const;

  // The parts of a step, in their order.
  void end_cancelled_and_late();
  void admit_waiting(const PoolView& view);
  void guess_ahead();
  void drop_guesses();
  void collect(const Plan& plan);
  void add_draws(const CacheStep& step);
  std::vector<Choice*> fork_siblings(Choice& leader);
  bool launch(TracedWork& scheduling);
  void draw_and_take();
  void advance_prompts();
  void take_off();
  void land();
  void settle(Flight& flight, void (EngineCore::*take)(Choice&));
  void land_token(Choice& choice);
  void take_drawn(Choice& choice);
  bool deliver(Choice& choice, const Sampled& sampled, bool has_room);
  void learn(const Flight& flight);
  void fail_step(const Error& error);

  bool has_room(const Choice& choice, std::int64_t place) const;
  // These remove the choice.
  void finish(Choice& choice, StopReason reason, std::string text);
  void fail(Choice& choice, const Error& error);
  void end(Choice& choice, Event event);
  void count_waiting() { waiting_ = scheduler_.counts().waiting; }

  Context& ctx_;
  const Model& model_;
  EngineOptions options_;
  std::unique_ptr<PagePool> own_pool_;  // these two: null if those of a cache are used
  std::unique_ptr<CacheBatch> own_batch_;
  PagePool& pool_;
  CacheBatch& batch_;
  Scheduler scheduler_;
  StepRunner runner_;
  std::unique_ptr<Speculator> speculator_;  // or null
  ChunkPacer pacer_;
  RowCost row_cost_;
  GuessGain guess_gain_;
  std::unordered_map<RequestId, std::unique_ptr<Choice>> choices_;
  RequestId last_id_ = 0;
  std::int64_t polls_ = 0;
  std::vector<RequestId> polled_;  // kept for its memory
  std::atomic<std::int64_t> waiting_ = 0;
  EngineStats stats_;
  // Of the step in progress; kept for their memory.
  std::vector<CacheBatch::Part> parts_;
  std::vector<Choice*> in_step_;  // of parts_; null: it has ended
  Flight now_, before_;           // this step; the one before, if it is up
  Clock::time_point last_landing_{};
  Clock::time_point step_begin_{};  // with speculation
  std::vector<RequestId> streams_;  // that drew in the last step, and go on
  std::vector<Guess> guesses_;
};

}  // namespace tessera::engine
