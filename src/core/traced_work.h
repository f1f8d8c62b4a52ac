// Records host work that belongs to no op, such as scheduling or drawing tokens, in the trace of a
// Context. With tracing off it costs one branch.
#pragma once

#include <chrono>

#include "tessera/trace.h"

namespace tessera {

class TracedWork {
 public:
  static constexpr const char* kKernel = "host";

  TracedWork(Trace& trace, const char* what) : trace_(trace) { begin(what); }
  ~TracedWork() { end(); }
  TracedWork(const TracedWork&) = delete;
  TracedWork& operator=(const TracedWork&) = delete;

  // Begins again after end(). The time between the two is not counted.
  void begin(const char* what) {
    what_ = what;
    if (trace_.enabled()) start_ = Clock::now();
  }
  void end() {
    if (what_ == nullptr || !trace_.enabled()) return;
    const Clock::time_point now = Clock::now();
    trace_.record({.op = what_,
                   .kernel = kKernel,
                   .shapes = {},
                   .calls = 1,
                   .seconds = seconds(now - start_)});
    trace_.add_overhead(seconds(Clock::now() - now));
    what_ = nullptr;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double seconds(Clock::duration time) {
    return std::chrono::duration<double>(time).count();
  }

  Trace& trace_;
  const char* what_ = nullptr;
  Clock::time_point start_{};
};

}  // namespace tessera
