// Who starts when, and what is refused. scheduler_plan_test.cc: what runs in a step.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "support/refusal.h"
#include "support/scheduler_desk.h"

namespace tessera::test {
namespace {

using engine::RequestId;
using engine::Scheduler;

using Desk = SchedulerDesk;
using Ids = std::vector<RequestId>;

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

TEST(Scheduler, AStreamOwesNoPages) {
  Scheduler scheduler({.max_sequences = 2, .max_step_tokens = 8, .total_pages = 10});
  const auto free_pages = [] { return 10; };
  const auto next_step = [](RequestId, std::int64_t n) { return engine::StepCost{n, 1}; };
  const auto to_store = [](RequestId, std::int64_t) { return 8; };  // far more than it takes
  const auto release = [](RequestId) {};
  const engine::PoolView pool{free_pages, next_step, to_store, release};
  scheduler.submit(1, {.prompt_tokens = 4, .pages = 8});
  scheduler.submit(2, {.prompt_tokens = 4, .pages = 8});
  scheduler.admit(1, 0, pool);
  EXPECT_EQ(plan_text(scheduler.plan(pool, 8)), "1:4!");
  EXPECT_FALSE(scheduler.next_admission(pool).has_value());
  scheduler.advance(1, 4, 5);
  EXPECT_EQ(plan_text(scheduler.plan(pool, 8)), "1:1!");
  EXPECT_EQ(scheduler.next_admission(pool), RequestId{2});
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

TEST(Scheduler, NobodyIsEverOverdueWithoutABound) {
  Desk desk({.max_sequences = 1,
             .max_step_tokens = 8,
             .total_pages = 10,
             .max_waiting_steps = INT64_MAX});
  desk.submit(1, 1, 9);
  desk.admit();
  desk.submit(2, 1, 0);
  for (int i = 0; i < 3; ++i) desk.step();
  desk.submit(3, 1, 9);
  desk.remove(1);
  EXPECT_EQ(desk.admit(), (Ids{3}));
}

TEST(Scheduler, TimeInTheQueueAddsUpOverPreemptions) {
  for (const std::int64_t stay : {1, 2}) {  // in the queue again, after two steps the first time
    Desk desk({.max_sequences = 2, .max_step_tokens = 8, .total_pages = 4, .max_waiting_steps = 4});
    desk.submit(1, 1, 9);
    desk.submit(9, 1, 9);
    desk.submit(2, 1, 0);
    EXPECT_EQ(desk.admit(), (Ids{1, 9}));
    for (int i = 0; i < 2; ++i) desk.step();
    desk.remove(9);
    EXPECT_EQ(desk.admit(), (Ids{2}));
    while (desk.preemptions() == 0) desk.step();  // both have two pages, and 1 needs a third
    EXPECT_FALSE(desk.scheduler.runs(2));
    for (std::int64_t i = 0; i < stay; ++i) desk.step();
    desk.remove(1);
    desk.submit(3, 1, 9);
    EXPECT_EQ(desk.admit().front(), stay == 1 ? RequestId{3} : RequestId{2});
  }
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
  EXPECT_EQ(plan_text(desk.step()), "1:1! 10:1! 11:1!");
  EXPECT_EQ(desk.pages.free_pages(), 20 - 4);  // one page together, one of its own for each
  EXPECT_EQ(desk.admit(), (Ids{}));
  desk.remove(1);
  EXPECT_EQ(desk.admit(), (Ids{2}));
  EXPECT_EQ(plan_text(desk.step()), "10:1! 11:1! 2:1!");
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

TEST(Scheduler, APrefixHitIsNotReadAgain) {
  Desk desk({.max_sequences = 2, .max_step_tokens = 64, .total_pages = 10});
  const FakeContent content{.family = 7, .shared_tokens = 20};
  desk.submit(1, 20, 0, 0, content);
  desk.admit();
  desk.step();
  desk.submit(2, 20, 0, 0, content);  // five pages, four of them shared, one for each stream
  EXPECT_EQ(desk.admit(), (Ids{2}));
  EXPECT_EQ(plan_text(desk.step()), "1:1! 2:4!");
}

TEST(Scheduler, KeepsItsStateWhenItIsMoved) {
  Desk desk({.max_sequences = 4, .max_step_tokens = 8, .total_pages = 8});
  desk.submit(1, 3);
  desk.submit(2, 3);
  desk.admit();
  desk.step();
  Scheduler moved = std::move(desk.scheduler);
  EXPECT_EQ(plan_text(moved.plan(desk.pages.view(), 8)), "1:1! 2:1!");
}

}  // namespace
}  // namespace tessera::test
