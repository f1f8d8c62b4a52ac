// Counts and times op calls. Off by default: an op then pays for one branch. When on, every call is
// recorded with its kernel, shapes, bytes and flops. A test can thus prove which kernel ran, and a
// profile can say where the time went.
//
// Threads: one at a time, that of the Context.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct TraceEntry {
  std::string op;      // "linear"
  std::string kernel;  // which implementation ran: "cpu.tiles.int8"
  std::string shapes;  // "x f32[1, 4096] weight nvfp4[4096, 4096]"
  std::int64_t calls = 0;
  double seconds = 0;      // of all calls
  std::int64_t bytes = 0;  // of all calls: each input read once, each output written once
  std::int64_t flops = 0;  // of all calls
};

class Trace {
 public:
  bool enabled() const { return enabled_; }
  void enable(bool on = true) { enabled_ = on; }
  void clear() { entries_.clear(); }

  // One entry for each distinct (op, kernel, shapes), in order of first call.
  const std::vector<TraceEntry>& entries() const { return entries_; }
  // Calls of one op; with a kernel, only those that ran on it.
  std::int64_t calls(std::string_view op, std::string_view kernel = {}) const;
  void record(const TraceEntry& call);

 private:
  bool enabled_ = false;
  std::vector<TraceEntry> entries_;
};

}  // namespace tessera
