// Times the kernels that the ops of a thread launch, without waiting between them.
//
//   by CUPTI    every kernel by itself, those of captured graphs too. Needs the toolkit's libcupti,
//               which is looked for when the first timer is made; nothing links it.
//   by events   one span from the first to the last kernel of each op. Ops must not be captured.
//
// Threads: the one that makes it runs the ops and stops it. One timer at a time.
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

// Empty: CUPTI can be used. Or why not, in a sentence.
std::string why_no_cupti();

// Begins at once. By CUPTI where that can be used, else by events.
std::unique_ptr<KernelTimer> make_kernel_timer(Context& ctx);
// By events in any case.
std::unique_ptr<KernelTimer> make_event_timer(Context& ctx);

}  // namespace tessera::cuda
