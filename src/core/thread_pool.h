// A fixed set of threads that share the tasks of one loop at a time.
//
// Threads: any number may call parallel_for() at the same time. Their loops run one after the
// other.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera {

class ThreadPool {
 public:
  // `threads` counts the calling thread; 0 means usable_processors(). If the system refuses to
  // start one of them, those that started end, and Error (device) says how many there were.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls fn(task, worker) once for each task in [0, n), where worker in [0, threads()) says which
  // scratch to use. Tasks are handed out one by one, so that uneven ones balance. Returns when all
  // are done, and throws the first exception that a task threw. A loop inside a task runs on that
  // task's thread: workers that wait for each other's loops would wait for ever.
  template <typename F>
  void parallel_for(std::int64_t n, F&& fn) {
    share_out(n, Order::one_by_one, fn);
  }
  // The same for tasks of similar length, each of which reads on where the one before it ended. A
  // thread gets them in long runs, which become shorter towards the end.
  template <typename F>
  void parallel_runs(std::int64_t n, F&& fn) {
    share_out(n, Order::in_runs, fn);
  }

 private:
  enum class Order : std::uint8_t { one_by_one, in_runs };
  using Call = void (*)(void* function, std::int64_t task, int worker);
  struct Job {
    Call call;
    void* function;
    std::int64_t n;
    Order order;
    std::atomic<std::int64_t> next{0};
    std::atomic<bool> failed{false};
    std::exception_ptr error{};  // written by the one task that set `failed`
  };

  template <typename Fn>
  void share_out(std::int64_t n, Order order, Fn& fn) {
    run(
        n, order,
        [](void* f, std::int64_t task, int worker) { (*static_cast<Fn*>(f))(task, worker); },
        const_cast<std::remove_const_t<Fn>*>(&fn));
  }
  void run(std::int64_t n, Order order, Call call, void* function);
  void start(int threads);
  void end();
  // Takes the next tasks of a job: [begin, end), empty if none is left.
  std::pair<std::int64_t, std::int64_t> take(Job& job) const;
  void work(Job& job, int worker);
  void work_on(Job& job, int worker);
  void worker_loop(int worker);

  std::vector<std::thread> workers_;
  std::mutex callers_;  // held for a whole loop
  // A worker increments `joined_` before it reads `job_`, and the caller clears `job_` before it
  // waits for `joined_` to fall to zero. So a worker that wakes late finds no job, and the caller
  // never waits for a sleeper: a small loop costs no wake-up.
  std::atomic<Job*> job_{nullptr};
  std::atomic<int> joined_{0};
  std::atomic<std::uint64_t> generation_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
};

}  // namespace tessera
