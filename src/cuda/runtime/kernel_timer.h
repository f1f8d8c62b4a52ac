// Times the kernels that the ops of a thread launch, without waiting between them.
//
//   by CUPTI    every kernel by itself, those of captured graphs too. Needs the toolkit's libcupti,
//               which is looked for when the first timer is made; nothing links it.
//   by events   one span from the first to the last kernel of each op. Ops must not be captured.
//
// One thread makes the timer, runs the ops and stops it. One timer at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/kernel_span.h"
#include "tessera/context.h"

namespace tessera::cuda {

class KernelTimer {
 public:
  virtual ~KernelTimer() = default;
  // Waits for the Context's work and returns what was launched, in order of start.
  virtual std::vector<KernelSpan> stop() = 0;
};

// Empty if CUPTI can be used; else the reason, in a sentence.
std::string why_no_cupti();

// Starts at once. Uses CUPTI if possible, else events.
std::unique_ptr<KernelTimer> make_kernel_timer(Context& ctx);
// Always uses events.
std::unique_ptr<KernelTimer> make_event_timer(Context& ctx);

}  // namespace tessera::cuda
