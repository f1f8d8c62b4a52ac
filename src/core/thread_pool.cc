#include "core/thread_pool.h"

#include <algorithm>
#include <new>
#include <system_error>

#include "core/fail.h"
#include "core/processors.h"

namespace tessera {
namespace {

// How long the caller spins before it lets others run: about 20 microseconds.
constexpr int kSpins = 2000;
// How long a worker spins before it sleeps: about 200 microseconds, longer than the gap between two
// steps of a model. Waking it costs the caller a system call, and a virtual machine may have to
// wait until its processor wakes. (With 20 microseconds, a worker slept three times in a step of 8
// streams.)
constexpr int kWorkerSpins = 10 * kSpins;
// More threads than this are a mistake in the caller's arithmetic.
constexpr int kMaxThreads = 1024;

// The task that a thread is in: a loop inside of it is not shared out.
struct InTask {
  const ThreadPool* pool = nullptr;
  int worker = 0;
};
thread_local InTask in_task;  // NOLINT: of this thread alone

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
         "thread count {} is not in 0..{}: give 0 for one thread for each processor", threads,
         kMaxThreads);
  }
  start(threads == 0 ? usable_processors() : threads);
}

ThreadPool::~ThreadPool() { end(); }

void ThreadPool::start(int threads) {
  const auto refuse = [&](const char* reason) {
    const int started = this->threads();
    end();
    const int advice = std::min(usable_processors(), started);
    fail(ErrorCode::device, "{} threads were asked for and {} could start ({}); use --threads {}",
         threads, started, reason, advice);
  };
  try {
    workers_.reserve(static_cast<std::size_t>(threads - 1));
    for (int worker = 1; worker < threads; ++worker) {
      workers_.emplace_back([this, worker] { worker_loop(worker); });
    }
  } catch (const std::system_error& error) {
    refuse(error.what());
  } catch (const std::bad_alloc&) {
    refuse("out of memory");
  }
}

void ThreadPool::end() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(std::int64_t n, Order order, Call call, void* function) {
  if (n <= 0) return;
  if (n == 1 || workers_.empty() || in_task.pool != nullptr) {
    const int worker = in_task.pool == this ? in_task.worker : 0;
    for (std::int64_t task = 0; task < n; ++task) call(function, task, worker);
    return;
  }
  const std::lock_guard one_loop(callers_);
  Job job{call, function, n, order};
  job_ = &job;
  ++generation_;
  if (sleepers_ > 0) {
    { std::lock_guard lock(mutex_); }  // waits for a worker between its last check and its sleep
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

std::pair<std::int64_t, std::int64_t> ThreadPool::take(Job& job) const {
  if (job.order == Order::one_by_one) {
    const std::int64_t task = job.next.fetch_add(1, std::memory_order_relaxed);
    return {task, std::min(task + 1, job.n)};
  }
  // A thread takes its share of what is left: with two threads half of it, then half of the rest.
  const std::int64_t threads = static_cast<std::int64_t>(workers_.size()) + 1;
  std::int64_t begin = job.next.load(std::memory_order_relaxed), end = begin;
  do {
    end = begin + (job.n - begin + threads - 1) / threads;
  } while (!job.next.compare_exchange_weak(begin, end, std::memory_order_relaxed));
  return {begin, end};
}

void ThreadPool::work(Job& job, int worker) {
  in_task = {.pool = this, .worker = worker};
  work_on(job, worker);
  in_task = {};
}

void ThreadPool::work_on(Job& job, int worker) {
  while (!job.failed.load(std::memory_order_relaxed)) {
    const auto [begin, end] = take(job);
    if (begin >= end) return;
    try {
      for (std::int64_t task = begin; task < end; ++task) job.call(job.function, task, worker);
    } catch (...) {
      if (!job.failed.exchange(true)) job.error = std::current_exception();
    }
  }
}

void ThreadPool::worker_loop(int worker) {
  std::uint64_t seen = 0;
  for (;;) {
    for (int spins = 0; spins < kWorkerSpins && generation_ == seen && !stop_; ++spins) pause();
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
