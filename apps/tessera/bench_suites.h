// The suites of `tessera bench`: single ops on the shapes of models that people run, and a model
// end to end.
#pragma once

#include <string>

#include "bench_results.h"
#include "core/function_ref.h"
#include "model_options.h"
#include "tessera/buffer.h"
#include "tessera/context.h"

namespace tessera::app {

struct SuiteArgs {
  Context& ctx;
  BenchResults& results;
  profile::Bandwidths& bandwidths;
  bool quick = false;
};

void bench_attention(const SuiteArgs& args);
void bench_linear(const SuiteArgs& args);
void bench_norm(const SuiteArgs& args);
// Prompts of 512 tokens and 128 tokens one by one, on the model of the options.
void bench_decode(const SuiteArgs& args, const ModelOptions& options);

// ---- shared by the suites -----------------------------------------------------------------------

struct OpQuestion {
  std::string suite, test;
  bool from_memory = false;  // the calls use more memory in turns than caches hold
};
// Runs the op again and again, for about a third of a second (a tenth if quick), and adds the
// result. `op` gets the number of the call, so that it may use other memory each time. Kernel,
// bytes and flops come from the trace of one call.
void measure_op(const SuiteArgs& args, const OpQuestion& question,
                FunctionRef<void(std::int64_t call)> op);

// f32 on the CPU, f16 on a GPU.
DType usual_dtype(const Context& ctx);
// A tensor of small random numbers on the Context's device.
Buffer random_tensor(Context& ctx, DType dtype, std::initializer_list<std::int64_t> shape,
                     std::uint64_t seed);

}  // namespace tessera::app
