#include "core/thread_pool.h"

#include <algorithm>

#include "core/fail.h"

namespace tessera {
namespace {

// About 20 microseconds: longer than the gap between two ops of a model, shorter than a scheduler's
// tick.
constexpr int kSpins = 2000;
// More threads than this are a mistake in the caller's arithmetic, not a machine.
constexpr int kMaxThreads = 1024;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  if (threads < 0 || threads > kMaxThreads) {
    fail(ErrorCode::invalid_argument,
         "thread count {} is not in 0..{}: give 0 for one thread per hardware thread", threads,
         kMaxThreads);
  }
  if (threads == 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  workers_.reserve(static_cast<std::size_t>(threads - 1));
  for (int worker = 1; worker < threads; ++worker) {
    workers_.emplace_back([this, worker] { worker_loop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(std::int64_t n, Call call, void* function) {
  if (n <= 0) return;
  if (n == 1 || workers_.empty()) {
    for (std::int64_t task = 0; task < n; ++task) call(function, task, 0);
    return;
  }
  Job job{call, function, n};
  job_ = &job;
  ++generation_;
  if (sleepers_ > 0) {
    { std::lock_guard lock(mutex_); }  // a worker between its last look and its sleep is waited for
    wake_.notify_all();
  }
  work(job, 0);
  job_ = nullptr;
  for (int spins = 0; joined_ != 0; ++spins) {
    if (spins < kSpins) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }
  if (job.failed) std::rethrow_exception(job.error);
}

void ThreadPool::work(Job& job, int worker) {
  for (;;) {
    const std::int64_t task = job.next.fetch_add(1, std::memory_order_relaxed);
    if (task >= job.n || job.failed.load(std::memory_order_relaxed)) return;
    try {
      job.call(job.function, task, worker);
    } catch (...) {
      if (!job.failed.exchange(true)) job.error = std::current_exception();
    }
  }
}

void ThreadPool::worker_loop(int worker) {
  std::uint64_t seen = 0;
  for (;;) {
    for (int spins = 0; spins < kSpins && generation_ == seen && !stop_; ++spins) pause();
    if (generation_ == seen && !stop_) {
      std::unique_lock lock(mutex_);
      ++sleepers_;
      wake_.wait(lock, [&] { return generation_ != seen || stop_; });
      --sleepers_;
    }
    if (stop_) return;
    seen = generation_;
    ++joined_;
    if (Job* job = job_) work(*job, worker);
    --joined_;
  }
}

}  // namespace tessera
