// Measures the time of an op on a GPU by replaying a graph. The time includes no launch by the
// host, and each call has its own memory, so that none finds its weights in a cache.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "tessera/context.h"

namespace tessera::bench {

struct Time {
  double us = 0;            // of one call: the median of 15 replays, after 3 warm-ups
  double min = 0, max = 0;  // over the same replays
};

// call(0) .. call(calls - 1), captured in one graph. Each is called once before, so that all
// scratch memory exists when the graph is captured.
class Replay {
 public:
  Replay(Context& ctx, int calls, const std::function<void(int)>& call);
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  // Replays the graph once and returns the microseconds of one call.
  double operator()();

 private:
  struct Captured;
  std::unique_ptr<Captured> captured_;
};

// Captures and replays.
Time time_calls(Context& ctx, int calls, const std::function<void(int)>& call);
// The same for two calls that are compared: their replays take turns, so that a drifting clock
// affects both.
std::pair<Time, Time> time_in_turns(Context& ctx, int calls, const std::function<void(int)>& call,
                                    const std::function<void(int)>& other);

// The number of copies of `bytes` that exceed the L2 cache by far: 200 MB in all, at least two
// copies and at most `most`.
int copies_beyond_cache(std::int64_t bytes, int most = 256);

// The trace entry of one call of an op.
struct TracedCall {
  std::string kernel;
  std::int64_t bytes = 0, flops = 0;
};
TracedCall trace_call(Context& ctx, const std::function<void()>& call);

// The rates of the machine, measured in the same run.
struct Ceilings {
  double bytes_per_s = 0;  // a large copy, bytes read and written
  double flops_per_s = 0;  // a large product of bf16 matrices, by the library
  // The least time for this many bytes and flops, in microseconds.
  double floor_us(std::int64_t bytes, std::int64_t flops = 0) const;
};
Ceilings measure_ceilings(Context& ctx);

}  // namespace tessera::bench
