// A Scheduler with a fake pool and sequences that never end, for tests of its rules.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "support/fake_pages.h"

namespace tessera::test {

// Pages have four tokens.
class SchedulerDesk {
 public:
  explicit SchedulerDesk(const engine::SchedulerOptions& options)
      : pages(options.total_pages, 4, options.max_step_tokens), scheduler(options) {}

  void submit(engine::RequestId id, std::int64_t prompt, int priority = 0, std::int64_t forks = 0,
              const FakeContent& content = {}) {
    const std::int64_t needs = pages.max_pages(content.policy, prompt + 1);
    scheduler.submit(id, {prompt, needs, priority, forks});
    pages.add(id, content);
    length[id] = prompt;
  }
  void remove(engine::RequestId id) {
    scheduler.remove(id);
    pages.remove(id);
  }
  // Starts the requests that may start, and returns them.
  std::vector<engine::RequestId> admit() {
    std::vector<engine::RequestId> started;
    while (const auto id = scheduler.next_admission(pages.view())) {
      const std::int64_t cached = pages.start(*id, length[*id]);
      stored[*id] = cached;
      scheduler.admit(*id, cached, pages.view());
      started.push_back(*id);
    }
    return started;
  }
  // One step; each drawn token is known afterwards, drafts are all rejected.
  const engine::Plan& step(std::int64_t chunk = 1000) {
    const engine::Plan& plan = scheduler.plan(pages.view(), chunk);
    for (const engine::StepItem& item : plan.items) pages.leave(item.id);
    for (const engine::StepItem& item : plan.items) {
      const bool stream = length[item.id] - stored[item.id] == 1;
      const std::int64_t rejected = stream ? item.tokens - 1 : 0;
      pages.store(item.id, item.tokens);
      pages.settle(item.id, rejected);
      stored[item.id] += item.tokens - rejected;
      if (item.wants_logits) length[item.id] = stored[item.id] + 1;
      scheduler.advance(item.id, stored[item.id], length[item.id]);
    }
    for (const engine::RequestId id : plan.preempted) stored[id] = 0;
    EXPECT_EQ(pages.problem(), "");
    return plan;
  }
  std::int64_t preemptions() const { return scheduler.counts().preemptions; }

  FakePages pages;
  engine::Scheduler scheduler;
  std::map<engine::RequestId, std::int64_t> length, stored;
};

// "7:3" three tokens of request 7, "7:3!" with logits.
inline std::string plan_text(const engine::Plan& plan) {
  std::string out;
  for (const engine::StepItem& item : plan.items) {
    if (!out.empty()) out += ' ';
    out += fmt::format("{}:{}{}", item.id, item.tokens, item.wants_logits ? "!" : "");
  }
  return out;
}

}  // namespace tessera::test
