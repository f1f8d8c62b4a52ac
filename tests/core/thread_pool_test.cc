#include "core/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>
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

// A loop inside of a task runs in that task's thread, under the same number: its scratch is apart.
TEST(ThreadPool, ALoopInsideOfATaskRunsInItsThread) {
  ThreadPool pool(4), other(3);
  std::atomic<int> inner = 0;
  std::atomic<bool> stays = true;
  pool.parallel_for(16, [&](std::int64_t, int worker) {
    const std::thread::id thread = std::this_thread::get_id();
    pool.parallel_for(10, [&](std::int64_t, int inner_worker) {
      if (inner_worker != worker || std::this_thread::get_id() != thread) stays = false;
      ++inner;
    });
    other.parallel_for(10, [&](std::int64_t, int inner_worker) {
      if (inner_worker != 0 || std::this_thread::get_id() != thread) stays = false;
      ++inner;
    });
  });
  EXPECT_EQ(inner, 320);
  EXPECT_TRUE(stays);
  std::atomic<int> after = 0;
  pool.parallel_for(10, [&](std::int64_t, int) { ++after; });
  EXPECT_EQ(after, 10);
}

// The loops of several callers do not mix: while one runs, no other task begins.
TEST(ThreadPool, LoopsOfSeveralThreadsRunOneAfterTheOther) {
  ThreadPool pool(3);
  std::atomic<int> running = -1;
  std::atomic<bool> alone = true;
  std::atomic<std::int64_t> total = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      for (int loop = 0; loop < 200; ++loop) {
        std::vector<std::int64_t> sums(3 * 16);
        pool.parallel_for(8, [&](std::int64_t task, int worker) {
          running = caller;
          sums[static_cast<std::size_t>(16 * worker)] += task;
          if (running != caller) alone = false;
        });
        total += sums[0] + sums[16] + sums[32];
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_TRUE(alone);
  EXPECT_EQ(total, 4 * 200 * 28);
}

// Runs in a process of its own, which may have little more memory than it has now.
[[noreturn, maybe_unused]] void start_too_many_threads() {
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  file >> pages;
  const rlim_t bytes =
      pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{64} << 20);  // 8 stacks
  const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
  setrlimit(RLIMIT_AS, &limit);
  try {
    const ThreadPool pool(200);
    std::fputs("200 threads started", stderr);
  } catch (const Error& error) {
    std::fputs(error.what(), stderr);
    std::_Exit(error.code() == ErrorCode::device ? 1 : 2);
  }
  std::_Exit(0);
}

TEST(ThreadPool, ThreadsThatCannotStartAreASentenceAndNotAHang) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers need more address space than the test allows";
#else
  EXPECT_EXIT(start_too_many_threads(), testing::ExitedWithCode(1),
              "^200 threads were asked for and [0-9]+ could start .*; use --threads [0-9]+$");
#endif
}

}  // namespace
}  // namespace tessera
