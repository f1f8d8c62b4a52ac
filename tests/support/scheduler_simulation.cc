#include "support/scheduler_simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/scheduler.h"
#include "support/fake_pages.h"
#include "support/scheduler_load.h"
#include "tessera/error.h"

namespace tessera::test {
namespace {

using engine::Plan;
using engine::RequestId;
using engine::Scheduler;
using engine::StepItem;

class Simulation {
 public:
  Simulation(std::uint64_t seed, std::int64_t requests)
      : dice_(seed),
        setting_(draw_setting(dice_)),
        requests_(requests),
        pages_(setting_.options.total_pages, setting_.page_size, setting_.options.max_step_tokens),
        scheduler_(setting_.options) {
    pages_.on_release = [this](RequestId id) { preempted(id); };
  }

  SimulationResult run() {
    while (result_.problem.empty() && (result_.accepted < requests_ || !live_.empty())) {
      arrive();
      cancel();
      admit();
      step();
    }
    const std::int64_t ended = result_.finished + result_.cancelled + result_.exhausted;
    check(ended == result_.accepted + result_.forks, "a request was lost");
    check(scheduler_.empty() && scheduler_.counts().running == 0, "the scheduler is not empty");
    check(pages_.free_pages() == setting_.options.total_pages, "a page leaked");
    result_.steps = now_;
    result_.preemptions = scheduler_.counts().preemptions;
    return result_;
  }

 private:
  void check(bool holds, const char* rule) {
    if (holds || !result_.problem.empty()) return;
    result_.problem = fmt::format("step {}: {}", now_, rule);
  }
  void record(std::uint64_t value) { result_.hash = (result_.hash ^ value) * 0x100000001b3; }

  SimulatedRequest& at(RequestId id) { return *live_.at(id); }
  std::vector<SimulatedRequest*>& list_of(const SimulatedRequest& r) {
    return r.running ? running_ : waiting_;
  }
  SimulatedRequest& add(const SimulatedRequest& request) {
    auto& owner = live_[request.id];
    owner = std::make_unique<SimulatedRequest>(request);
    list_of(request).push_back(owner.get());
    return *owner;
  }
  void move(SimulatedRequest& r, bool to_running) {
    std::erase(list_of(r), &r);
    r.running = to_running;
    list_of(r).push_back(&r);
  }
  void remove(SimulatedRequest& r, std::int64_t& count) {
    ++count;
    scheduler_.remove(r.id);
    pages_.remove(r.id);
    std::erase(list_of(r), &r);
    live_.erase(r.id);
  }

  void submit() {
    SimulatedRequest r = draw_request(dice_, setting_);
    r.id = next_id_++;
    r.ticket = r.serial = serial_;
    r.since = now_;
    const std::int64_t stored = r.bounded ? r.target - 1 : r.prompt + 1;
    const std::int64_t needs = pages_.max_pages(r.content.policy, stored);
    const bool can_run =
        needs <= setting_.options.total_pages && r.forks < setting_.options.max_sequences;
    try {
      scheduler_.submit(r.id, {r.prompt, needs, r.priority, r.forks});
      check(can_run, "a request that can never run was taken");
    } catch (const Error&) {
      check(!can_run, "a request that can run was refused");
      ++result_.refused;
      return;
    }
    ++serial_;
    ++result_.accepted;
    pages_.add(r.id, r.content);
    add(r);
  }

  void arrive() {
    if (!dice_.percent(setting_.arrivals) || waiting_.size() > 150) return;
    for (std::int64_t n = dice_.between(1, setting_.burst); n > 0; --n) {
      if (result_.accepted < requests_) submit();
    }
  }

  void cancel() {
    if (!dice_.percent(setting_.cancels)) return;
    auto& from = dice_.percent(50) ? waiting_ : running_;
    if (from.empty()) return;
    const auto i = dice_.below(static_cast<std::int64_t>(from.size()));
    remove(*from[static_cast<std::size_t>(i)], result_.cancelled);
  }

  // The order in which those in the queue would start now.
  auto queue_merit(const SimulatedRequest& r) const {
    SimulatedRequest now = r;
    if (!r.overdue) now.due = r.since + setting_.options.max_waiting_steps - r.waited;
    now.overdue = now.due <= now_;
    return now.merit();
  }

  void admit() {
    bool admitted = false;
    while (const auto id = scheduler_.next_admission(pages_.view())) {
      SimulatedRequest& r = at(*id);
      check(!r.running, "a running request was admitted");
      const auto merit = queue_merit(r);
      std::int64_t best_priority = r.priority;
      for (const SimulatedRequest* other : waiting_) {
        check(merit <= queue_merit(*other), "a request was overtaken");
        best_priority = std::max<std::int64_t>(best_priority, other->priority);
      }
      if (!result_.problem.empty()) return;
      start(r);
      if (r.overdue && best_priority > r.priority) ++result_.overdue;
      admitted = true;
      record(*id);
    }
    if (admitted) {
      blocked_ = work_ = 0;
      for (const SimulatedRequest* r : running_) work_ += r->target - r->stored;
    } else if (!waiting_.empty()) {
      // Each step stores a token of those that run, at least, so they are gone in the end.
      check(++blocked_ <= work_ + 1, "the queue stands still");
    }
    check(waiting_.empty() || !running_.empty(), "the pool is empty and nobody starts");
    std::int64_t places = 0;
    for (const SimulatedRequest* r : running_) places += 1 + r->forks;
    check(places <= setting_.options.max_sequences, "too many sequences run");
  }

  void start(SimulatedRequest& r) {
    if (!r.overdue) r.due = r.since + setting_.options.max_waiting_steps - r.waited;
    r.overdue = r.due <= now_;
    r.waited += now_ - r.since;
    result_.longest_wait = std::max(result_.longest_wait, r.waited);
    r.stored = pages_.start(r.id, r.known);
    result_.cached_tokens += r.stored;
    scheduler_.admit(r.id, r.stored, pages_.view());
    move(r, true);
  }

  // The pool releases the request: no running request may be worse.
  void preempted(RequestId id) {
    SimulatedRequest& r = at(id);
    check(r.running, "a request that waits was preempted");
    check(running_.size() > 1, "the only request was preempted");
    for (const SimulatedRequest* other : running_) {
      check(other->merit() <= r.merit(), "not the least deserving was preempted");
    }
    r.stored = r.drafted = 0;
    r.since = now_;
    move(r, false);
    record(id);
  }

  void draft() {
    for (SimulatedRequest* r : running_) {
      r->drafted = 0;
      if (r->pending() != 1 || r->known == r->prompt || !dice_.percent(30)) continue;
      r->drafted = dice_.between(0, 7);
      scheduler_.draft(r->id, r->drafted);
    }
  }

  void step() {
    draft();
    const std::int64_t chunk = dice_.between(1, setting_.options.max_step_tokens);
    ++now_;
    const Plan& plan = scheduler_.plan(pages_.view(), chunk);
    check_plan(plan, chunk);
    if (!result_.problem.empty()) return;
    for (const StepItem& item : plan.items) pages_.leave(item.id);
    for (const StepItem& item : plan.items) pages_.store(item.id, item.tokens);
    check(pages_.problem().empty(), "pages are wrong");
    for (const StepItem& item : plan.items) take_result(at(item.id), item);
    if (plan.exhausted) remove(at(*plan.exhausted), result_.exhausted);
    check(pages_.problem().empty(), "pages are wrong after the step");
  }

  void check_plan(const Plan& plan, std::int64_t chunk) {
    std::int64_t rows = 0, prompt_rows = 0, streams = 0;
    planned_.clear();
    for (const StepItem& item : plan.items) {
      const SimulatedRequest& r = at(item.id);
      const bool stream = r.pending() == 1;
      planned_.push_back(item.id);
      rows += item.tokens;
      (stream ? streams : prompt_rows) += stream ? 1 : item.tokens;
      check(r.running, "a request that does not run was planned");
      check(item.tokens >= 1 && item.tokens <= r.pending() + (stream ? r.drafted : 0),
            "a sequence has more rows than tokens");
      check(item.wants_logits == (item.tokens >= r.pending()), "logits for the wrong rows");
      check(stream || streams == 0 || prompt_rows <= chunk, "prompts have more than their chunk");
      check(!stream || prompt_rows == 0, "a prompt comes before a stream");
      record(item.id);
      record(static_cast<std::uint64_t>(item.tokens));
    }
    check(rows <= setting_.options.max_step_tokens, "the step has too many rows");
    const auto has_item = [this](const SimulatedRequest* r) {
      return std::binary_search(planned_.begin(), planned_.end(), r->id);
    };
    std::sort(planned_.begin(), planned_.end());
    check(std::adjacent_find(planned_.begin(), planned_.end()) == planned_.end(),
          "a sequence was planned twice");
    const SimulatedRequest* best = nullptr;
    for (const SimulatedRequest* r : running_) {
      if (plan.exhausted == r->id) {
        check(running_.size() == 1 && !r->bounded && plan.items.empty(), "gave up too early");
        continue;
      }
      check(r->pending() != 1 || has_item(r), "a stream stands still");
      if (best == nullptr || r->merit() < best->merit()) best = r;
    }
    check(best == nullptr || has_item(best), "the most deserving makes no progress");
  }

  void take_result(SimulatedRequest& r, const StepItem& item) {
    if (!item.wants_logits) {
      pages_.settle(r.id, 0);
      r.stored += item.tokens;
      scheduler_.advance(r.id, r.stored, r.known);
      return;
    }
    const std::int64_t drafts = item.tokens - r.pending();
    result_.drafted_tokens += drafts;
    const std::int64_t accepted = std::min(dice_.below(drafts + 1), r.target - r.known - 1);
    pages_.settle(r.id, drafts - accepted);
    r.stored = r.known + accepted;
    r.known = r.stored;
    scheduler_.advance(r.id, r.stored, r.known);
    for (; r.forks > 0; --r.forks) fork(r);
    draw_token(r);
  }

  void fork(const SimulatedRequest& parent) {
    SimulatedRequest child = parent;
    child.id = next_id_++;
    child.serial = serial_++;
    child.forks = 0;
    child.target = dice_.between(parent.prompt + 1, parent.target);
    scheduler_.admit_fork(child.id, parent.id);
    pages_.fork(child.id, parent.id);
    ++result_.forks;
    work_ += child.target - child.stored;
    draw_token(add(child));
  }

  void draw_token(SimulatedRequest& r) {
    if (++r.known >= r.target) {
      remove(r, result_.finished);
    } else {
      scheduler_.advance(r.id, r.stored, r.known);
    }
  }

  Dice dice_;
  SimulatedSetting setting_;
  std::int64_t requests_;
  FakePages pages_;
  Scheduler scheduler_;
  SimulationResult result_;
  std::unordered_map<RequestId, std::unique_ptr<SimulatedRequest>> live_;
  std::vector<SimulatedRequest*> waiting_, running_;
  std::vector<RequestId> planned_;
  RequestId next_id_ = 1;
  std::int64_t serial_ = 0, now_ = 0;
  std::int64_t blocked_ = 0, work_ = 0;  // steps without an admission; tokens left at the last one
};

}  // namespace

SimulationResult& SimulationResult::operator+=(const SimulationResult& other) {
  if (problem.empty()) problem = other.problem;
  hash = hash * 31 + other.hash;
  steps += other.steps;
  accepted += other.accepted;
  refused += other.refused;
  forks += other.forks;
  finished += other.finished;
  cancelled += other.cancelled;
  exhausted += other.exhausted;
  preemptions += other.preemptions;
  overdue += other.overdue;
  cached_tokens += other.cached_tokens;
  drafted_tokens += other.drafted_tokens;
  longest_wait = std::max(longest_wait, other.longest_wait);
  return *this;
}

SimulationResult simulate_scheduler(std::uint64_t seed, std::int64_t requests) {
  return Simulation(seed, requests).run();
}

}  // namespace tessera::test
