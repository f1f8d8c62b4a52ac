// One op call, from its checks to its end. OpScope holds the op's name for error messages, adds the
// name and shapes to errors thrown inside, and records the call in the Trace.
//
//   OpScope op(ctx, "softmax");
//   op.require(x.rank > 0, "x must have at least one dimension, got {}", x);
//   op.run([&] { return "x " + to_string(x); },                // for errors and the trace
//          [&] { cpu::softmax(ctx, args); return "cpu"; },     // runs it, returns the kernel's
//          name
//          [&] { cuda::softmax(ctx, args); return "cuda"; },   // on a GPU
//          [&] { return OpCost{bytes, flops}; });              // for the trace
#pragma once

#include <chrono>
#include <initializer_list>
#include <string>
#include <utility>

#include "core/build_config.h"
#include "core/cuda_runtime.h"
#include "core/fail.h"
#include "core/format.h"
#include "core/workspace.h"
#include "quant/weight_format.h"
#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera {

struct OpCost {
  std::int64_t bytes = 0;
  std::int64_t flops = 0;
};

// An Error whose message names its op.
class OpError : public Error {
 public:
  using Error::Error;
};

class OpScope {
 public:
  using Clock = std::chrono::steady_clock;

  // Throws if another thread is using the Context, or if it is lost (Context::lost).
  OpScope(Context& ctx, const char* op) : ctx_(ctx), op_(op), use_(ctx.workspace().user(), op) {
    ctx.require_not_lost();
    if (ctx.trace().enabled()) start_ = Clock::now();
  }

  // Throws "op: message". Pass tensors as they are: they are turned into text only for a refusal.
  template <typename... Args>
  void require(bool holds, fmt::format_string<Args...> format, Args&&... args) const {
    if (!holds) refuse(format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    throw OpError(ErrorCode::invalid_argument,
                  fmt::format("{}: {}", op_, fmt::format(format, std::forward<Args>(args)...)));
  }

  // The checks that every tensor argument must pass: it is given, on the Context's device, of an
  // accepted dtype, not null and aligned to its elements. Its last dimension is contiguous, and all
  // sizes and offsets fit into 64 bits.
  void input(const char* arg, const Tensor& tensor, std::initializer_list<DType> accepted) const;
  // The checks of input(). The memory must be writable, and no element is reached twice.
  void output(const char* arg, const Tensor& tensor, std::initializer_list<DType> accepted) const;
  // The tensor must have exactly this shape; -1 accepts any size.
  void shape(const char* arg, const Tensor& tensor,
             std::initializer_list<std::int64_t> expected) const;
  // Both tensors must have the same shape.
  void same_shape(const char* arg, const Tensor& tensor, const char* other_arg,
                  const Tensor& other) const;
  // Refuses an output that shares memory with an input. Only contiguous tensors are compared.
  // `same_view_is_fine`: the op may work in place on the same view.
  void no_overlap(const char* out_arg, const Tensor& out, const char* in_arg, const Tensor& in,
                  bool same_view_is_fine = false) const;
  // If the Context's workspace only counts, takes the bytes that scratch_bytes() returns and
  // returns true: nothing is left to do. scratch_bytes() is the most that the kernel needs for
  // these shapes and for fewer rows or keys.
  template <typename ScratchBytes>
  bool only_counts(ScratchBytes&& scratch_bytes) const {
    if (!ctx_.workspace().is_counting()) return false;
    Workspace::Frame(ctx_.workspace()).take<char>(scratch_bytes());
    return true;
  }
  // The checks of input() or output() for keys and values: `stored` has the dtype of `computed`, or
  // 8 bits, or is f16 or bf16 if `computed` is f32, which only the CPU takes.
  void stored_input(const char* arg, const Tensor& stored, const char* computed_arg,
                    const Tensor& computed) const;
  void stored_output(const char* arg, const Tensor& stored, const char* computed_arg,
                     const Tensor& computed) const;
  // Checks that `scales` are given if and only if `stored` has 8 bits. If `stored` is [pages,
  // page_size, kv_heads, dim], its scales are [pages, kv_heads, page_size]. The same for a batch.
  void scales_of(const char* arg, const Tensor& stored, const char* scales_arg,
                 const Tensor& scales, bool written) const;
  // Throws an error: the op has no kernel for the Context's device.
  [[noreturn]] void no_kernel() const;

  // Runs the kernel for the Context's device and, with tracing on, records the call. A call that
  // threw is not recorded. Any error inside, from a launch, a library or an allocation, is rethrown
  // with the op's name and shapes. A GPU fault ends the Context.
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
  // The same for an op that has one kernel for every device, or that chooses the kernel itself.
  template <typename Shapes, typename Kernel, typename Cost>
  void run(Shapes&& shapes, Kernel&& kernel, Cost&& cost) const {
    try {
      const char* name = named(kernel);
      if (ctx_.trace().enabled()) {
        const Clock::time_point end = wait_for_end();  // before any text is made
        record(name, end, shapes(), cost());
      }
    } catch (const Error& error) {
      explain(error, shapes());
    }
  }

 private:
  // Runs the kernel under the op's name, which Nsight's tools show.
  template <typename Kernel>
  const char* named(Kernel&& kernel) const {
    if constexpr (kHaveCuda) {
      if (!ctx_.device().is_cpu()) {
        const NamedWork work(op_);
        return kernel();
      }
    }
    return kernel();
  }
  struct NamedWork {
    explicit NamedWork(const char* op) { cuda::begin_op(op); }
    ~NamedWork() { cuda::end_op(); }
    NamedWork(const NamedWork&) = delete;
    NamedWork& operator=(const NamedWork&) = delete;
  };
  void one_dtype_on_gpu(const char* arg, const Tensor& stored, const char* computed_arg,
                        const Tensor& computed) const;
  Clock::time_point wait_for_end() const;
  void record(const char* kernel, Clock::time_point end, std::string shapes, OpCost cost) const;
  [[noreturn]] void explain(const Error& error, const std::string& shapes) const;

  Context& ctx_;
  const char* op_;
  OneUser::Use use_;
  Clock::time_point start_{};
};

}  // namespace tessera
