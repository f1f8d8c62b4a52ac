// The rules of the scheduler, one by one. scheduler_simulation_test.cc runs them all together.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/allocations.h"
#include "support/fake_pages.h"
#include "support/refusal.h"

namespace tessera::test {
namespace {

using engine::Demand;
using engine::Plan;
using engine::RequestId;
using engine::Scheduler;
using engine::SchedulerOptions;
using engine::StepItem;

using Ids = std::vector<RequestId>;

// A scheduler with a pool of pages of four tokens. Sequences never end by themselves.
class Desk {
 public:
  explicit Desk(const SchedulerOptions& options)
      : pages(options.total_pages, 4, options.max_step_tokens), scheduler(options) {}

  void submit(RequestId id, std::int64_t prompt, int priority = 0, std::int64_t forks = 0,
              const FakeContent& content = {}) {
    const std::int64_t needs = pages.max_pages(content.policy, prompt + 1);
    scheduler.submit(id, {prompt, needs, priority, forks});
    pages.add(id, content);
    length[id] = prompt;
  }
  void remove(RequestId id) {
    scheduler.remove(id);
    pages.remove(id);
  }
  // Starts what may start. Returns whom.
  Ids admit() {
    Ids started;
    while (const auto id = scheduler.next_admission(pages.view())) {
      const std::int64_t cached = pages.start(*id, length[*id]);
      stored[*id] = cached;
      scheduler.admit(*id, cached, pages.view());
      started.push_back(*id);
    }
    return started;
  }
  // One step; each drawn token is known afterwards, drafts are all rejected.
  const Plan& step(std::int64_t chunk = 1000) {
    const Plan& plan = scheduler.plan(pages.view(), chunk);
    for (const StepItem& item : plan.items) {
      const bool stream = length[item.id] - stored[item.id] == 1;
      const std::int64_t rejected = stream ? item.tokens - 1 : 0;
      pages.store(item.id, item.tokens, rejected);
      stored[item.id] += item.tokens - rejected;
      if (item.wants_logits) length[item.id] = stored[item.id] + 1;
      scheduler.advance(item.id, stored[item.id], length[item.id]);
    }
    for (const RequestId id : plan.preempted) stored[id] = 0;
    EXPECT_EQ(pages.problem(), "");
    return plan;
  }
  std::int64_t preemptions() const { return scheduler.counts().preemptions; }

  FakePages pages;
  Scheduler scheduler;
  std::map<RequestId, std::int64_t> length, stored;
};

// "7:3" three tokens of request 7, "7:3!" with logits.
std::string text(const Plan& plan) {
  std::string out;
  for (const StepItem& item : plan.items) {
    out += (out.empty() ? "" : " ") + std::to_string(item.id) + ":" + std::to_string(item.tokens) +
           (item.wants_logits ? "!" : "");
  }
  return out;
}

TEST(Scheduler, RefusesWhatCanNeverRun) {
  Scheduler scheduler({.max_sequences = 4, .max_step_tokens = 8, .total_pages = 10});
  EXPECT_TRUE(refuses(
      [&] {
        scheduler.submit(1, {0, 1});
      },
      "a prompt of 0 tokens cannot run; give at least one"));
  EXPECT_TRUE(refuses(
      [&] {
        scheduler.submit(1, {30, 11});
      },
      "the request needs 11 pages of keys and values and the pool has 10; shorten "
      "the prompt or the answer, give it a window, or make the pool larger"));
  EXPECT_TRUE(refuses([&] { scheduler.submit(1, {.prompt_tokens = 3, .pages = 1, .forks = 4}); },
                      "the request asks for 5 answers; an engine for 4 sequences gives 1 to 4"));
  EXPECT_TRUE(scheduler.empty());
  scheduler.submit(1, {30, 10});
  EXPECT_TRUE(refuses(
      [&] {
        scheduler.submit(1, {30, 10});
      },
      "request 1 is known to the scheduler already"));
  EXPECT_EQ(scheduler.counts().waiting, 1);
}

TEST(Scheduler, RefusesWrongOptions) {
  EXPECT_TRUE(refuses([] { Scheduler({.max_sequences = 0, .total_pages = 1}); },
                      "Scheduler: max_sequences is 0; it must be at least 1"));
  EXPECT_TRUE(refuses([] { Scheduler({.max_sequences = 9, .max_step_tokens = 8}); },
                      "Scheduler: max_step_tokens is 8; it must be at least 9"));
  EXPECT_TRUE(refuses([] { Scheduler({.total_pages = 0}); },
                      "Scheduler: total_pages is 0; it must be at least 1"));
  EXPECT_TRUE(refuses([] { Scheduler({.total_pages = 1, .max_waiting_steps = -1}); },
                      "Scheduler: max_waiting_steps is -1; it must be at least 0"));
}

TEST(Scheduler, RefusesCallsOutOfTurn) {
  Desk desk({.max_sequences = 2, .max_step_tokens = 8, .total_pages = 10});
  EXPECT_TRUE(
      refuses([&] { desk.scheduler.remove(5); }, "request 5 is not known to the scheduler"));
  desk.submit(1, 3);
  EXPECT_TRUE(refuses([&] { desk.scheduler.advance(1, 1, 3); }, "request 1 does not run"));
  EXPECT_TRUE(refuses([&] { desk.scheduler.admit(1, 3, desk.pages.view()); },
                      "request 1 has 3 tokens; 3 of them cannot be cached, 0 to 2 can"));
  desk.admit();
  EXPECT_TRUE(refuses([&] { desk.scheduler.admit(1, 0, desk.pages.view()); },
                      "request 1 cannot be admitted: it runs already"));
  EXPECT_TRUE(refuses([&] { desk.scheduler.advance(1, 4, 3); },
                      "request 1 has 3 tokens; 4 of them cannot be stored"));
  EXPECT_TRUE(refuses([&] { desk.scheduler.admit_fork(2, 1); },
                      "request 1 has no place left for a fork; its Demand must count all of them"));
}

TEST(Scheduler, StreamsComeFirstAndPromptsShareTheChunk) {
  Desk desk({.max_sequences = 4, .max_step_tokens = 16, .total_pages = 100});
  desk.submit(1, 20);
  desk.submit(2, 5);
  EXPECT_EQ(desk.admit(), (Ids{1, 2}));
  EXPECT_EQ(text(desk.step(6)), "1:16");  // nobody to disturb: the whole budget
  EXPECT_EQ(text(desk.step(6)), "1:4! 2:5!");
  desk.submit(3, 9);
  desk.submit(4, 9);
  EXPECT_EQ(desk.admit(), (Ids{3, 4}));
  EXPECT_EQ(text(desk.step(6)), "1:1! 2:1! 3:6");
  EXPECT_EQ(text(desk.step(6)), "1:1! 2:1! 3:3! 4:3");
  EXPECT_EQ(text(desk.step(0)), "1:1! 2:1! 3:1! 4:1");  // a chunk has at least one token
  EXPECT_EQ(text(desk.step(100)), "1:1! 2:1! 3:1! 4:5!");
}

TEST(Scheduler, StartsByPriorityThenByArrival) {
  Desk desk({.max_sequences = 1, .max_step_tokens = 16, .total_pages = 100});
  desk.submit(1, 2, 0);
  desk.submit(2, 2, 5);
  desk.submit(3, 2, -5);
  desk.submit(4, 2, 5);
  desk.submit(5, 2, 0);
  Ids order;
  for (int i = 0; i < 5; ++i) {
    for (const RequestId id : desk.admit()) {
      order.push_back(id);
      desk.remove(id);
    }
  }
  EXPECT_EQ(order, (Ids{2, 4, 1, 5, 3}));
  EXPECT_TRUE(desk.scheduler.empty());
}

TEST(Scheduler, NobodyOvertakesARequestThatWaitsForPages) {
  Desk desk({.max_sequences = 8, .max_step_tokens = 64, .total_pages = 10});
  desk.submit(1, 16);  // 4 pages, one for its stream
  desk.submit(2, 24);  // 6 pages: no room
  desk.submit(3, 1);
  EXPECT_EQ(desk.admit(), (Ids{1}));
  desk.step();
  EXPECT_EQ(desk.admit(), (Ids{}));
  desk.remove(1);
  EXPECT_EQ(desk.admit(), (Ids{2, 3}));
}

TEST(Scheduler, CountsThePagesThatAdmittedPromptsWillTake) {
  Desk desk({.max_sequences = 8, .max_step_tokens = 8, .total_pages = 10});
  for (RequestId id = 1; id <= 3; ++id) desk.submit(id, 16);
  // Two prompts of four pages and one page more for each are ten. Nothing is stored yet.
  EXPECT_EQ(desk.admit(), (Ids{1, 2}));
  EXPECT_EQ(desk.pages.free_pages(), 10);
  for (int i = 0; i < 6; ++i) desk.step();
  EXPECT_GT(desk.stored[2], 16);
  EXPECT_EQ(desk.preemptions(), 0);
}

TEST(Scheduler, ALongWaitComesBeforeEveryPriority) {
  Desk desk({.max_sequences = 1, .max_step_tokens = 8, .total_pages = 10, .max_waiting_steps = 3});
  desk.submit(1, 1, 9);
  desk.admit();
  desk.submit(2, 1, -1);
  for (int i = 0; i < 3; ++i) {
    desk.step();
    desk.submit(10 + static_cast<RequestId>(i), 1, 9);
  }
  desk.remove(1);
  EXPECT_EQ(desk.admit(), (Ids{2}));
  desk.remove(2);
  EXPECT_EQ(desk.admit(), (Ids{10}));
}

TEST(Scheduler, TimeInTheQueueAddsUpOverPreemptions) {
  Desk desk({.max_sequences = 2, .max_step_tokens = 8, .total_pages = 4, .max_waiting_steps = 4});
  desk.submit(1, 1, 9);
  desk.submit(2, 1, 0);
  EXPECT_EQ(desk.admit(), (Ids{1, 2}));
  while (desk.preemptions() == 0) desk.step();  // both have two pages, and 1 needs a third
  EXPECT_FALSE(desk.scheduler.runs(2));
  desk.submit(3, 1, 9);
  for (int i = 0; i < 3; ++i) desk.step();
  desk.remove(1);
  EXPECT_EQ(desk.admit(), (Ids{3}));  // 2 has waited for three steps
  desk.step();
  desk.remove(3);
  desk.submit(4, 1, 9);
  EXPECT_EQ(desk.admit(), (Ids{2}));  // and now for four; there is no room for 4 beside it
}

TEST(Scheduler, PreemptsTheYoungestOfTheLowestPriority) {
  Desk desk({.max_sequences = 4, .max_step_tokens = 32, .total_pages = 8});
  desk.submit(1, 3, 1);
  desk.submit(2, 3, 0);
  desk.submit(3, 3, 0);
  desk.submit(4, 3, 1);
  EXPECT_EQ(desk.admit(), (Ids{1, 4, 2, 3}));
  Ids victims;
  for (int i = 0; i < 30; ++i) {
    for (const RequestId id : desk.step().preempted) victims.push_back(id);
  }
  EXPECT_EQ(victims, (Ids{3, 2, 4}));
  // Each is recomputed with the tokens it had, the better before the worse.
  desk.remove(1);
  EXPECT_EQ(desk.admit(), (Ids{4}));
  const std::string whole = "4:" + std::to_string(desk.length[4]) + "!";
  EXPECT_EQ(text(desk.step()), whole);
  desk.submit(5, 1, 0);
  desk.remove(4);
  EXPECT_EQ(desk.admit(), (Ids{2, 3}));  // before 5, which is younger
}

TEST(Scheduler, ABetterPromptTakesThePagesOfAStream) {
  Desk desk({.max_sequences = 2, .max_step_tokens = 8, .total_pages = 8});
  desk.submit(1, 1, 0);
  EXPECT_EQ(desk.admit(), (Ids{1}));
  for (int i = 0; i < 8; ++i) desk.step();
  desk.submit(2, 16, 1);  // 4 pages of the 6 that are free
  EXPECT_EQ(desk.admit(), (Ids{2}));
  Ids victims;
  for (int i = 0; i < 16; ++i) {  // 2 reads a token a step, 1 grows as fast
    const Plan& plan = desk.step(1);
    victims.insert(victims.end(), plan.preempted.begin(), plan.preempted.end());
    EXPECT_EQ(plan.items.back().id, 2u);
  }
  EXPECT_EQ(victims, (Ids{1}));
}

TEST(Scheduler, APromptWithoutPagesKeepsWhatItHasRead) {
  Desk desk({.max_sequences = 2, .max_step_tokens = 8, .total_pages = 8});
  desk.submit(1, 1, 1);
  EXPECT_EQ(desk.admit(), (Ids{1}));
  for (int i = 0; i < 7; ++i) desk.step();
  desk.submit(2, 16, 0);
  EXPECT_EQ(desk.admit(), (Ids{2}));
  while (desk.stored[2] < 12) desk.step(1);
  EXPECT_EQ(text(desk.step(1)), "1:1!");  // five pages for 1, three for 2
  EXPECT_EQ(desk.preemptions(), 0);
  while (desk.preemptions() == 0) desk.step(1);
  EXPECT_EQ(desk.stored[1], 21);
}

TEST(Scheduler, AChunkShrinksToThePagesThatAreLeft) {
  Desk desk({.max_sequences = 2, .max_step_tokens = 32, .total_pages = 8});
  desk.submit(1, 1);
  desk.submit(2, 17);
  EXPECT_EQ(desk.admit(), (Ids{1, 2}));
  desk.pages.add(99, {});
  desk.pages.start(99, 16);
  desk.pages.store(99, 16);  // somebody else takes four pages
  EXPECT_EQ(text(desk.step()), "1:1! 2:12");
}

TEST(Scheduler, SaysWhoNeedsMoreThanTheWholePool) {
  Desk desk({.max_sequences = 2, .max_step_tokens = 8, .total_pages = 3});
  desk.submit(1, 2);
  desk.submit(2, 2);
  for (int i = 0; i < 11; ++i) {
    desk.admit();
    EXPECT_FALSE(desk.step().exhausted.has_value());
  }
  EXPECT_EQ(desk.length[1], 13);
  EXPECT_EQ(desk.step().exhausted, RequestId{1});
  EXPECT_EQ(text(desk.step()), "");
  desk.remove(1);
  EXPECT_EQ(desk.admit(), (Ids{2}));
}

TEST(Scheduler, ForksHaveTheirPlacesAndNeverWait) {
  Desk desk({.max_sequences = 3, .max_step_tokens = 8, .total_pages = 20});
  desk.submit(1, 6, 0, 2);
  desk.submit(2, 1);
  EXPECT_EQ(desk.admit(), (Ids{1}));  // no place for 2 beside the forks
  desk.step();
  for (const RequestId child : {10, 11}) {
    desk.scheduler.admit_fork(child, 1);
    desk.pages.fork(child, 1);
    desk.stored[child] = desk.stored[1];
    desk.length[child] = desk.length[1];
  }
  EXPECT_EQ(text(desk.step()), "1:1! 10:1! 11:1!");
  EXPECT_EQ(desk.pages.free_pages(), 20 - 4);  // one page together, one of its own for each
  EXPECT_EQ(desk.admit(), (Ids{}));
  desk.remove(1);
  EXPECT_EQ(desk.admit(), (Ids{2}));
  EXPECT_EQ(text(desk.step()), "10:1! 11:1! 2:1!");
}

TEST(Scheduler, PlacesOfForksThatNeverCameAreGivenBack) {
  Desk desk({.max_sequences = 2, .max_step_tokens = 8, .total_pages = 20});
  desk.submit(1, 6, 0, 1);
  desk.submit(2, 1);
  EXPECT_EQ(desk.admit(), (Ids{1}));
  desk.remove(1);
  EXPECT_EQ(desk.admit(), (Ids{2}));
  desk.submit(3, 1);
  EXPECT_EQ(desk.admit(), (Ids{3}));
}

TEST(Scheduler, DraftsHaveTheRowsThatAreLeft) {
  Desk desk({.max_sequences = 3, .max_step_tokens = 12, .total_pages = 100});
  desk.submit(1, 2);
  desk.submit(2, 2);
  desk.admit();
  desk.step();
  desk.scheduler.draft(1, 4);
  desk.scheduler.draft(2, 9);
  EXPECT_EQ(text(desk.step()), "1:5! 2:7!");
  EXPECT_EQ(text(desk.step()), "1:1! 2:1!");  // drafts hold for one step
  desk.submit(3, 8);
  desk.admit();
  desk.scheduler.draft(1, 4);
  desk.scheduler.draft(2, 9);
  EXPECT_EQ(text(desk.step()), "1:3! 2:1! 3:8!");  // prompts come before drafts
}

TEST(Scheduler, DraftsLeaveAPageForEverySequence) {
  Desk desk({.max_sequences = 2, .max_step_tokens = 64, .total_pages = 6});
  desk.submit(1, 3);
  desk.submit(2, 3);
  desk.admit();
  desk.step();  // three of four rows of a page each, four pages are free
  desk.scheduler.draft(1, 30);
  desk.scheduler.draft(2, 30);
  EXPECT_EQ(text(desk.step()), "1:9! 2:1!");
  EXPECT_EQ(desk.preemptions(), 0);
}

TEST(Scheduler, APrefixHitIsNotReadAgain) {
  Desk desk({.max_sequences = 2, .max_step_tokens = 64, .total_pages = 10});
  const FakeContent content{.family = 7, .shared_tokens = 20};
  desk.submit(1, 20, 0, 0, content);
  desk.admit();
  desk.step();
  desk.submit(2, 20, 0, 0, content);  // five pages, four of them shared, one for each stream
  EXPECT_EQ(desk.admit(), (Ids{2}));
  EXPECT_EQ(text(desk.step()), "1:1! 2:4!");
}

TEST(Scheduler, SinksStopAtTheEdge) {
  Desk desk({.max_sequences = 2, .max_step_tokens = 8, .total_pages = 20});
  desk.submit(1, 20, 0, 0, {.policy = CachePolicy::sinks(2, 9)});
  desk.admit();
  EXPECT_EQ(text(desk.step()), "1:8");
  EXPECT_EQ(text(desk.step()), "1:3");
  EXPECT_EQ(text(desk.step()), "1:8");
  EXPECT_EQ(text(desk.step()), "1:1!");
}

TEST(Scheduler, APoolThatIsFullWithOneRequestStillFinishesAll) {
  Desk desk({.max_sequences = 4, .max_step_tokens = 4, .total_pages = 5});
  for (RequestId id = 0; id < 8; ++id) desk.submit(id, 1);
  std::int64_t left = 8;
  for (int step = 0; left > 0; ++step) {
    ASSERT_LT(step, 1000);
    desk.admit();
    for (const StepItem& item : Plan(desk.step()).items) {
      if (desk.length[item.id] < 19) continue;  // all five pages
      desk.remove(item.id);
      --left;
    }
  }
  EXPECT_GT(desk.preemptions(), 0);
  EXPECT_EQ(desk.pages.free_pages(), 5);
}

TEST(Scheduler, KeepsItsStateWhenItIsMoved) {
  Desk desk({.max_sequences = 4, .max_step_tokens = 8, .total_pages = 8});
  desk.submit(1, 3);
  desk.submit(2, 3);
  desk.admit();
  desk.step();
  Scheduler moved = std::move(desk.scheduler);
  EXPECT_EQ(text(moved.plan(desk.pages.view(), 8)), "1:1! 2:1!");
}

// Two long requests push each other out of the pool for ever; nothing comes from the heap.
TEST(Scheduler, StepsTakeNothingFromTheHeap) {
  if (!AllocationCounter::works()) GTEST_SKIP() << "a sanitizer has its own operator new";
  constexpr std::int64_t kPages = 16, kPageSize = 4;
  Scheduler scheduler({.max_sequences = 8, .max_step_tokens = 32, .total_pages = kPages});
  std::int64_t stored[8] = {}, known[8] = {};
  const auto pages_of = [](std::int64_t tokens) { return (tokens + kPageSize - 1) / kPageSize; };
  const auto free_pages = [&] {
    std::int64_t held = 0;
    for (const std::int64_t tokens : stored) held += pages_of(tokens);
    return kPages - held;
  };
  const auto next_step = [&](RequestId id, std::int64_t wanted) {
    return engine::StepCost{wanted, pages_of(stored[id] + wanted) - pages_of(stored[id])};
  };
  const auto to_store = [&](RequestId id, std::int64_t tokens) {
    return pages_of(stored[id] + tokens) - pages_of(stored[id]);
  };
  const auto release = [&](RequestId id) { stored[id] = 0; };
  const engine::PoolView pool{free_pages, next_step, to_store, release};
  for (RequestId id = 0; id < 8; ++id) {
    known[id] = 10;
    scheduler.submit(id, {.prompt_tokens = known[id], .pages = kPages});
  }
  const auto step = [&] {
    while (const auto id = scheduler.next_admission(pool)) scheduler.admit(*id, 0, pool);
    for (const StepItem& item : scheduler.plan(pool, 16).items) {
      stored[item.id] += item.tokens;
      if (item.wants_logits) ++known[item.id];
      if (known[item.id] > 30) {  // begins again
        stored[item.id] = 0;
        known[item.id] = 10;
      }
      scheduler.advance(item.id, stored[item.id], known[item.id]);
    }
  };
  for (int i = 0; i < 200; ++i) step();
  const std::int64_t before = scheduler.counts().preemptions;
  const AllocationCounter counter;
  for (int i = 0; i < 1000; ++i) step();
  EXPECT_EQ(counter.count(), 0);
  EXPECT_GT(scheduler.counts().preemptions, before + 10);
}

}  // namespace
}  // namespace tessera::test
