#include "random/watchdog.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace tessera::test {

Watchdog::Watchdog(std::chrono::seconds limit, bool verbose)
    : limit_(limit), verbose_(verbose), thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Watchdog::begin(std::string call) {
  const std::lock_guard lock(mutex_);
  if (verbose_ && !call.empty()) {
    fmt::print("{}\n", call);
    std::fflush(stdout);
  }
  call_ = std::move(call);
  looks_ = 0;
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  // It counts its own looks, not the clock: a machine that was put to sleep hangs in no call.
  constexpr std::chrono::milliseconds kLook(200);
  while (!changed_.wait_for(lock, kLook, [this] { return over_; })) {
    if (call_.empty() || ++looks_ * kLook < limit_) continue;
    fmt::print("HANGS for {} s: {}\n", limit_.count(), call_);
    std::fflush(stdout);
    std::_Exit(3);  // the thread that hangs never will
  }
}

}  // namespace tessera::test
