// Lets one thread in at a time. A second thread is refused; a mutex would make it wait. Using a
// Context from two threads at once is a mistake in the program, and with a mutex the two would take
// turns at random.
#pragma once

#include <atomic>
#include <thread>

namespace tessera {

class OneUser {
 public:
  // The thread is inside until this ends. It may enter again meanwhile.
  class Use {
   public:
    // Throws Error (invalid_argument) that begins with `what` if another thread is inside.
    Use(OneUser& user, const char* what) : user_(user), outermost_(user.enter(what)) {}
    // Waits for the other thread instead: for destructors, which cannot refuse.
    explicit Use(OneUser& user) : user_(user), outermost_(user.wait()) {}
    ~Use() {
      if (outermost_) user_.thread_.store(nullptr, std::memory_order_release);
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    OneUser& user_;
    bool outermost_;
  };

 private:
  // Its address identifies a thread: cheaper than std::thread::id, and never null.
  static inline thread_local const char this_thread = 0;

  // The thread that is inside: null if this one has just entered.
  const char* try_enter() {
    const char* inside = nullptr;
    thread_.compare_exchange_strong(inside, &this_thread, std::memory_order_acquire);
    return inside;
  }
  bool enter(const char* what) {
    const char* const inside = try_enter();
    if (inside != nullptr && inside != &this_thread) refuse(what);
    return inside == nullptr;
  }
  bool wait() {
    const char* inside = nullptr;
    while ((inside = try_enter()) != nullptr && inside != &this_thread) std::this_thread::yield();
    return inside == nullptr;
  }
  [[noreturn]] static void refuse(const char* what);

  std::atomic<const char*> thread_{nullptr};
};

}  // namespace tessera
