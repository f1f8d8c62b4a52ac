// One request through the engine's own steps, timed: the prompt, then token by token. `tessera
// bench` and `tessera profile` thus measure the code that serves users.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/kernel_span.h"
#include "tessera/context.h"
#include "tessera/model.h"
#include "tessera/trace.h"

namespace tessera::profile {

struct PhaseRun {
  double seconds = 0;  // without the time of tracing itself
  double tracing_seconds = 0;
  std::int64_t tokens = 0, steps = 0;
  bool fuses_layers = false;  // Model::fuses_layers() of the first step: the plan, not the trace
  // With tracing on. On a GPU, seconds are those of its kernels; the rest of the phase is gaps.
  std::vector<TraceEntry> entries{};
  // On a GPU, the source of these entries: the entry of each op call, and the kernels.
  std::vector<std::size_t> order{};
  std::vector<KernelSpan> kernels{};
};

struct EngineRun {
  PhaseRun prefill;  // reads the prompt and draws the first token
  PhaseRun decode;   // the tokens after the first
};

struct EngineRunOptions {
  std::int64_t prompt_tokens = 512;
  std::int64_t decode_tokens = 128;  // after the one that the prompt's step draws
  bool trace = false;
  bool separate_layers = false;  // of the trace
};

// An engine that is ready for such runs. Ids are random and the same in every run; tokens are drawn
// greedily. Leaves the Context's trace off and empty. Several on one Context must end in the
// reverse order of their beginning: each holds scratch memory.
class EngineRunner {
 public:
  EngineRunner(Context& ctx, const Model& model, const EngineRunOptions& options);
  ~EngineRunner();
  EngineRunner(const EngineRunner&) = delete;
  EngineRunner& operator=(const EngineRunner&) = delete;

  EngineRun run();
  // The same with or without tracing, whatever the options say.
  EngineRun run(bool trace);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

EngineRun run_engine(Context& ctx, const Model& model, const EngineRunOptions& options);
// Several runs after a warm-up, in the order in which they ran.
std::vector<EngineRun> repeat_engine(Context& ctx, const Model& model,
                                     const EngineRunOptions& options, int repeats);

// The run with the median time of one phase.
const PhaseRun& median_phase(const std::vector<EngineRun>& runs, PhaseRun EngineRun::*phase);

// Random ids of the vocabulary, the same on every run.
std::vector<std::int32_t> random_ids(std::int64_t count, std::int64_t vocab);

}  // namespace tessera::profile
