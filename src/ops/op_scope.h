// One op call, from its checks to its end: holds the op's name for error texts, gives what goes
// wrong inside a name and shapes, and records the call in the Trace.
//
//   OpScope op(ctx, "softmax");
//   op.require(x.rank > 0, "x must have at least one dimension, got {}", x);
//   op.run([&] { return "x " + to_string(x); },                // for errors and the trace
//          [&] { cpu::softmax(ctx, args); return "cpu"; },     // does it, and says what did it
//          [&] { cuda::softmax(ctx, args); return "cuda"; },   // on a GPU
//          [&] { return OpCost{bytes, flops}; });              // for the trace
#pragma once

#include <chrono>
#include <initializer_list>
#include <string>
#include <utility>

#include "core/build_config.h"
#include "core/fail.h"
#include "core/format.h"
#include "core/workspace.h"
#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera {

struct OpCost {
  std::int64_t bytes = 0;
  std::int64_t flops = 0;
};

// An Error that names its op.
class OpError : public Error {
 public:
  using Error::Error;
};

class OpScope {
 public:
  using Clock = std::chrono::steady_clock;

  // Throws where the Context has ended (Context::lost).
  OpScope(Context& ctx, const char* op) : ctx_(ctx), op_(op) {
    ctx.require_not_lost();
    if (ctx.trace().enabled()) start_ = Clock::now();
  }

  // Throws "op: message". Tensors are passed as they are: text is made only for a refusal.
  template <typename... Args>
  void require(bool holds, fmt::format_string<Args...> format, Args&&... args) const {
    if (!holds) refuse(format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    throw OpError(ErrorCode::invalid_argument,
                  fmt::format("{}: {}", op_, fmt::format(format, std::forward<Args>(args)...)));
  }

  // The checks every tensor argument passes: given, on the Context's device, of an accepted dtype,
  // not null, aligned to its element, last dimension contiguous, all sizes and offsets within 64
  // bits.
  void input(const char* arg, const Tensor& tensor, std::initializer_list<DType> accepted) const;
  // As input(), and no element is reached twice.
  void output(const char* arg, const Tensor& tensor, std::initializer_list<DType> accepted) const;
  // The tensor's shape is exactly this; -1 takes any size.
  void shape(const char* arg, const Tensor& tensor,
             std::initializer_list<std::int64_t> expected) const;
  // Both have the same shape.
  void same_shape(const char* arg, const Tensor& tensor, const char* other_arg,
                  const Tensor& other) const;
  // Refuses an output that shares memory with an input, as far as contiguous tensors can tell.
  // `same_view_is_fine`: the op may work in place on the very same view.
  void no_overlap(const char* out_arg, const Tensor& out, const char* in_arg, const Tensor& in,
                  bool same_view_is_fine = false) const;
  // Where the Context's workspace only counts: takes the bytes that scratch_bytes() says the kernel
  // needs at most, for these shapes and for fewer rows or keys, and nothing is left to do.
  template <typename ScratchBytes>
  bool only_counts(ScratchBytes&& scratch_bytes) const {
    if (!ctx_.workspace().is_counting()) return false;
    Workspace::Frame(ctx_.workspace()).take<char>(scratch_bytes());
    return true;
  }
  // Throws that the op has no kernel for the Context's device.
  [[noreturn]] void no_kernel() const;

  // Runs the kernel of the Context's device and, with tracing on, records the call; one that threw
  // is not recorded. What goes wrong inside, be it a launch, a library or want of memory, is thrown
  // on with the op's name and shapes. A fault of the GPU ends the Context.
  template <typename Shapes, typename Cpu, typename Cuda, typename Cost>
  void run(Shapes&& shapes, Cpu&& on_cpu, Cuda&& on_cuda, Cost&& cost) const {
    const auto kernel = [&]() -> const char* {
      if (ctx_.device().is_cpu()) return on_cpu();
      if constexpr (kHaveCuda) {
        return on_cuda();
      } else {
        no_kernel();
      }
    };
    run(shapes, kernel, cost);
  }
  // The same where one kernel serves every device, or the op chooses by itself.
  template <typename Shapes, typename Kernel, typename Cost>
  void run(Shapes&& shapes, Kernel&& kernel, Cost&& cost) const {
    try {
      const char* name = kernel();
      if (ctx_.trace().enabled()) record(name, shapes(), cost());
    } catch (const Error& error) {
      explain(error, shapes());
    }
  }

 private:
  void record(const char* kernel, std::string shapes, OpCost cost) const;
  [[noreturn]] void explain(const Error& error, const std::string& shapes) const;

  Context& ctx_;
  const char* op_;
  Clock::time_point start_{};
};

}  // namespace tessera
