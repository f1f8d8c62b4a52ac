// Counts and times op calls. Off by default: it then costs an op one branch. When on, every call is
// recorded with its kernel, shapes, bytes and flops, so that a test can check which kernel ran, and
// a profile can show where the time went.
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
  double seconds = 0;             // of all calls
  std::int64_t bytes = 0;         // of all calls: each input read once, each output written once
  std::int64_t flops = 0;         // of all calls
  std::int64_t layer = kNoLayer;  // of a model; only where the trace keeps layers apart

  static constexpr std::int64_t kNoLayer = -1;
};

class Trace {
 public:
  bool enabled() const { return enabled_; }
  void enable(bool on = true) { enabled_ = on; }
  void clear() {
    entries_.clear();
    overhead_seconds_ = 0;
  }
  // Keeps the calls of a model's layers apart. Off by default, because all layers make the same
  // calls.
  void separate_layers(bool on = true) { separate_layers_ = on; }
  // Calls from now on belong to this layer, or to none.
  void enter_layer(std::int64_t layer) { layer_ = layer; }

  // One entry for each distinct (op, kernel, shapes), in order of first call; with separate_layers,
  // one for each layer too.
  const std::vector<TraceEntry>& entries() const { return entries_; }
  // Calls of one op; with a kernel, only those that ran on it.
  std::int64_t calls(std::string_view op, std::string_view kernel = {}) const;
  void record(TraceEntry call);
  // The time that recording itself took since clear(). It falls between the calls, never into their
  // times; a profile subtracts it from the total.
  double overhead_seconds() const { return overhead_seconds_; }
  void add_overhead(double seconds) { overhead_seconds_ += seconds; }

 private:
  bool enabled_ = false, separate_layers_ = false;
  std::int64_t layer_ = TraceEntry::kNoLayer;
  double overhead_seconds_ = 0;
  std::vector<TraceEntry> entries_;
};

}  // namespace tessera
