// What runs in a step, and who gives its pages back.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "support/allocations.h"
#include "support/scheduler_desk.h"

namespace tessera::test {
namespace {

using engine::Plan;
using engine::RequestId;
using engine::Scheduler;
using engine::StepItem;

using Desk = SchedulerDesk;
using Ids = std::vector<RequestId>;

TEST(SchedulerPlan, StreamsComeFirstAndPromptsShareTheChunk) {
  Desk desk({.max_sequences = 4, .max_step_tokens = 16, .total_pages = 100});
  desk.submit(1, 20);
  desk.submit(2, 5);
  EXPECT_EQ(desk.admit(), (Ids{1, 2}));
  EXPECT_EQ(plan_text(desk.step(6)), "1:16");  // nobody to disturb: the whole budget
  EXPECT_EQ(plan_text(desk.step(6)), "1:4! 2:5!");
  desk.submit(3, 9);
  desk.submit(4, 9);
  EXPECT_EQ(desk.admit(), (Ids{3, 4}));
  EXPECT_EQ(plan_text(desk.step(6)), "1:1! 2:1! 3:6");
  EXPECT_EQ(plan_text(desk.step(6)), "1:1! 2:1! 3:3! 4:3");
  EXPECT_EQ(plan_text(desk.step(0)), "1:1! 2:1! 3:1!");  // prompts wait for the next one
  EXPECT_EQ(plan_text(desk.step(100)), "1:1! 2:1! 3:1! 4:6!");
}

TEST(SchedulerPlan, PreemptsTheYoungestOfTheLowestPriority) {
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
  const std::string whole = fmt::format("4:{}!", desk.length[4]);
  EXPECT_EQ(plan_text(desk.step()), whole);
  desk.submit(5, 1, 0);
  desk.remove(4);
  EXPECT_EQ(desk.admit(), (Ids{2, 3}));  // before 5, which is younger
}

TEST(SchedulerPlan, ABetterPromptTakesThePagesOfAStream) {
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

TEST(SchedulerPlan, ThePagesOfAPreemptedStreamCountInTheSameStep) {
  Desk desk({.max_sequences = 2, .max_step_tokens = 16, .total_pages = 8});
  desk.submit(1, 1, 0);
  desk.admit();
  desk.step();
  desk.submit(2, 20, 1);
  EXPECT_EQ(desk.admit(), (Ids{2}));
  for (int i = 0; i < 3; ++i) desk.step(4);  // 1 has a full page, 2 has three
  desk.pages.add(99, {});
  desk.pages.start(99, 12);
  desk.pages.store(99, 12);  // somebody else takes three of the last four
  // 1 was to have the last page. Now 2 has both.
  const Plan& plan = desk.step(8);
  EXPECT_EQ(plan.preempted, (Ids{1}));
  EXPECT_EQ(plan_text(plan), "2:8!");
}

TEST(SchedulerPlan, APromptWithoutPagesKeepsWhatItHasRead) {
  Desk desk({.max_sequences = 2, .max_step_tokens = 8, .total_pages = 8});
  desk.submit(1, 1, 1);
  EXPECT_EQ(desk.admit(), (Ids{1}));
  for (int i = 0; i < 7; ++i) desk.step();
  desk.submit(2, 16, 0);
  EXPECT_EQ(desk.admit(), (Ids{2}));
  while (desk.stored[2] < 12) desk.step(1);
  EXPECT_EQ(plan_text(desk.step(1)), "1:1!");  // five pages for 1, three for 2
  EXPECT_EQ(desk.preemptions(), 0);
  while (desk.preemptions() == 0) desk.step(1);
  EXPECT_EQ(desk.stored[1], 21);
}

TEST(SchedulerPlan, AChunkShrinksToThePagesThatAreLeft) {
  Desk desk({.max_sequences = 2, .max_step_tokens = 32, .total_pages = 8});
  desk.submit(1, 1);
  desk.submit(2, 17);
  EXPECT_EQ(desk.admit(), (Ids{1, 2}));
  desk.pages.add(99, {});
  desk.pages.start(99, 16);
  desk.pages.store(99, 16);  // somebody else takes four pages
  EXPECT_EQ(plan_text(desk.step()), "1:1! 2:12");
}

TEST(SchedulerPlan, SaysWhoNeedsMoreThanTheWholePool) {
  Desk desk({.max_sequences = 2, .max_step_tokens = 8, .total_pages = 3});
  desk.submit(1, 2);
  desk.submit(2, 2);
  for (int i = 0; i < 11; ++i) {
    desk.admit();
    EXPECT_FALSE(desk.step().exhausted.has_value());
  }
  EXPECT_EQ(desk.length[1], 13);
  EXPECT_EQ(desk.step().exhausted, RequestId{1});
  EXPECT_EQ(plan_text(desk.step()), "");
  desk.remove(1);
  EXPECT_EQ(desk.admit(), (Ids{2}));
}

TEST(SchedulerPlan, SaysWhichPromptNeedsMoreThanTheWholePool) {
  Desk desk({.max_sequences = 2, .max_step_tokens = 8, .total_pages = 3});
  desk.scheduler.submit(1, {.prompt_tokens = 14, .pages = 1});  // not true
  desk.pages.add(1, {});
  desk.length[1] = 14;
  EXPECT_EQ(desk.admit(), (Ids{1}));
  EXPECT_EQ(plan_text(desk.step()), "1:8");
  EXPECT_EQ(plan_text(desk.step()), "1:4");
  EXPECT_EQ(desk.step().exhausted, RequestId{1});
}

TEST(SchedulerPlan, DraftsHaveTheRowsThatAreLeft) {
  Desk desk({.max_sequences = 3, .max_step_tokens = 12, .total_pages = 100});
  desk.submit(1, 2);
  desk.submit(2, 2);
  desk.admit();
  desk.step();
  desk.scheduler.draft(1, 4);
  desk.scheduler.draft(2, 9);
  EXPECT_EQ(plan_text(desk.step()), "1:5! 2:7!");
  EXPECT_EQ(plan_text(desk.step()), "1:1! 2:1!");  // drafts hold for one step
  desk.submit(3, 8);
  desk.admit();
  desk.scheduler.draft(1, 4);
  desk.scheduler.draft(2, 9);
  EXPECT_EQ(plan_text(desk.step()), "1:3! 2:1! 3:8!");  // prompts come before drafts
}

TEST(SchedulerPlan, DraftsLeaveAPageForEverySequence) {
  Desk desk({.max_sequences = 2, .max_step_tokens = 64, .total_pages = 6});
  desk.submit(1, 3);
  desk.submit(2, 3);
  desk.admit();
  desk.step();  // three of four rows of a page each, four pages are free
  desk.scheduler.draft(1, 30);
  desk.scheduler.draft(2, 30);
  EXPECT_EQ(plan_text(desk.step()), "1:9! 2:1!");
  EXPECT_EQ(desk.preemptions(), 0);
}

TEST(SchedulerPlan, DraftsUseThePageThatTheirStreamTakesAnyway) {
  Desk desk({.max_sequences = 2, .max_step_tokens = 64, .total_pages = 6});
  desk.submit(1, 4);
  desk.submit(2, 4);
  desk.admit();
  desk.step();
  desk.scheduler.draft(1, 30);
  desk.scheduler.draft(2, 30);
  EXPECT_EQ(plan_text(desk.step()), "1:4! 2:4!");
}

TEST(SchedulerPlan, SinksStopAtTheEdge) {
  Desk desk({.max_sequences = 2, .max_step_tokens = 8, .total_pages = 20});
  desk.submit(1, 20, 0, 0, {.policy = CachePolicy::sinks(2, 9)});
  desk.admit();
  EXPECT_EQ(plan_text(desk.step()), "1:8");
  EXPECT_EQ(plan_text(desk.step()), "1:3");
  EXPECT_EQ(plan_text(desk.step()), "1:8");
  EXPECT_EQ(plan_text(desk.step()), "1:1!");
}

TEST(SchedulerPlan, APoolThatIsFullWithOneRequestStillFinishesAll) {
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

TEST(SchedulerPlan, AsksAboutThoseThatRunAndTheFrontOfTheQueue) {
  Scheduler scheduler({.max_sequences = 8, .max_step_tokens = 8, .total_pages = 100});
  std::int64_t asked = 0;
  const auto free_pages = [&] { return 20; };
  const auto next_step = [&](RequestId, std::int64_t wanted) {
    ++asked;
    return engine::StepCost{wanted, 1};
  };
  const auto to_store = [&](RequestId, std::int64_t) { return ++asked, 5; };
  const auto release = [](RequestId) {};
  const engine::PoolView pool{free_pages, next_step, to_store, release};
  for (RequestId id = 0; id < 10000; ++id) {
    scheduler.submit(id, {.prompt_tokens = 1, .pages = 1, .priority = static_cast<int>(id % 7)});
  }
  while (const auto id = scheduler.next_admission(pool)) scheduler.admit(*id, 0, pool);
  const std::int64_t running = scheduler.counts().running;
  EXPECT_GT(running, 1);
  asked = 0;
  EXPECT_FALSE(scheduler.next_admission(pool).has_value());
  scheduler.plan(pool, 8);
  EXPECT_LE(asked, running + 1);
}

// Two long requests push each other out of the pool for ever; nothing comes from the heap.
TEST(SchedulerPlan, StepsTakeNothingFromTheHeap) {
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
