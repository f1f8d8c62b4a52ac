// What a GPU did during a phase: which op calls there were, and when their kernels ran. On the CPU,
// and in builds without CUDA, both do nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "core/kernel_span.h"
#include "tessera/context.h"

namespace tessera::profile {

// The trace's entry of each op call, in the order of calls, while it lives. The Context traces.
class CallOrder {
 public:
  explicit CallOrder(Context& ctx);
  ~CallOrder();
  CallOrder(const CallOrder&) = delete;
  CallOrder& operator=(const CallOrder&) = delete;
  std::vector<std::size_t> take();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Times kernels while it lives.
class KernelWatch {
 public:
  explicit KernelWatch(Context& ctx);
  // Whether it has the names of kernels (CUPTI), and so sees those of captured steps.
  static bool names_kernels();
  ~KernelWatch();
  KernelWatch(const KernelWatch&) = delete;
  KernelWatch& operator=(const KernelWatch&) = delete;
  std::vector<KernelSpan> take();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::profile
