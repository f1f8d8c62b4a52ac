#include "core/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

#include "tessera/error.h"

namespace tessera {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (std::int64_t n : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> hits(static_cast<std::size_t>(n));
      pool.parallel_for(n, [&](std::int64_t task, int worker) {
        EXPECT_LT(worker, threads);
        ++hits[static_cast<std::size_t>(task)];
      });
      for (const auto& hit : hits) EXPECT_EQ(hit, 1);
    }
  }
}

TEST(ThreadPool, WorkersKeepTheirScratchApart) {
  ThreadPool pool(4);
  for (int repeat = 0; repeat < 200; ++repeat) {
    std::vector<std::int64_t> sums(4 * 16);  // 16: a cache line each
    pool.parallel_for(100, [&](std::int64_t task, int worker) { sums[16 * worker] += task; });
    EXPECT_EQ(sums[0] + sums[16] + sums[32] + sums[48], 4950);
  }
}

TEST(ThreadPool, SurvivesManySmallLoopsAndPauses) {
  ThreadPool pool(3);
  std::atomic<std::int64_t> total = 0;
  for (int loop = 0; loop < 5000; ++loop) {
    if (loop % 1000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    pool.parallel_for(4, [&](std::int64_t task, int) { total += task; });
  }
  EXPECT_EQ(total, 5000 * 6);
}

TEST(ThreadPool, ThrowsWhatATaskThrew) {
  ThreadPool pool(2);
  EXPECT_THROW(pool.parallel_for(50,
                                 [](std::int64_t task, int) {
                                   if (task == 17) throw std::runtime_error("seventeen");
                                 }),
               std::runtime_error);
  std::atomic<int> after = 0;
  pool.parallel_for(10, [&](std::int64_t, int) { ++after; });
  EXPECT_EQ(after, 10);
}

TEST(ThreadPool, RefusesANegativeCount) { EXPECT_THROW(ThreadPool pool(-1), Error); }

}  // namespace
// Every task runs once, for any number of tasks and threads. A thread gets one run after another.
TEST(ThreadPool, RunsCoverEveryTaskOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (const std::int64_t n : {0, 1, 2, 3, 7, 64, 1001}) {
      std::vector<std::atomic<int>> counts(static_cast<std::size_t>(n));
      std::vector<std::int64_t> last(static_cast<std::size_t>(threads), -1);
      std::atomic<bool> rising{true};
      pool.parallel_runs(n, [&](std::int64_t task, int worker) {
        ++counts[static_cast<std::size_t>(task)];
        std::int64_t& before = last[static_cast<std::size_t>(worker)];
        if (task <= before) rising = false;
        before = task;
      });
      for (const std::atomic<int>& count : counts) EXPECT_EQ(count, 1);
      EXPECT_TRUE(rising);
    }
  }
}

TEST(ThreadPool, AnExceptionEndsTheRuns) {
  ThreadPool pool(3);
  EXPECT_THROW(pool.parallel_runs(100,
                                  [](std::int64_t task, int) {
                                    if (task == 42) throw std::runtime_error("no");
                                  }),
               std::runtime_error);
}

}  // namespace tessera
