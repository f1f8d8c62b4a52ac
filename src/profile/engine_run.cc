#include "profile/engine_run.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "core/checked.h"
#include "core/philox.h"
#include "core/traced_work.h"
#include "engine/engine_core.h"
#include "profile/gpu_watch.h"
#include "profile/kernel_times.h"
#include "profile/timing.h"

namespace tessera::profile {

// The engine without its thread, with room for one request at a time.
class EngineRunner::Impl {
 public:
  Impl(Context& ctx, const Model& model, const EngineRunOptions& options)
      : ctx_(ctx),
        model_(model),
        options_(options),
        core_(ctx, model, engine_options(options)),
        prompt_(random_ids(options.prompt_tokens, model.config().vocab)) {}

  bool traces() const { return options_.trace; }

  EngineRun run(bool trace) {
    if (!trace) return one_run(Watch::nothing);
    if (ctx_.device().is_cpu()) return one_run(Watch::trace);
    // Tracing a GPU waits after each op. So one run finds the ops, and another one times them.
    const EngineRun traced = one_run(Watch::trace);
    EngineRun timed = one_run(Watch::kernels);
    for (PhaseRun EngineRun::*phase : {&EngineRun::prefill, &EngineRun::decode}) {
      (timed.*phase).entries = times_of(traced.*phase, timed.*phase).entries;
      // The host's work meanwhile does not count as time of the GPU.
      std::erase_if((timed.*phase).entries,
                    [](const TraceEntry& entry) { return entry.kernel == TracedWork::kKernel; });
    }
    return timed;
  }

  // If kernels have names, the traced run shows which op launches which kernel.
  static KernelTimes times_of(const PhaseRun& traced, const PhaseRun& timed) {
    if (traced.kernels.empty()) return time_entries(traced.entries, traced.order, timed.kernels);
    return time_entries_by_name(traced.entries, traced.order, traced.kernels, timed.kernels);
  }

 private:
  enum class Watch : std::uint8_t { nothing, trace, kernels };

  EngineRun one_run(Watch watch) {
    const bool prompt_fuses = options_.prompt_tokens == 1 && core_.fuses_layers(0);
    const bool token_fuses = core_.fuses_layers(options_.prompt_tokens);
    submit();
    EngineRun run;
    Trace& trace = ctx_.trace();
    trace.enable(watch == Watch::trace);
    trace.separate_layers(options_.separate_layers);
    run.prefill = timed(watch, [&] { return drawn_ > 0; });
    run.prefill.tokens = options_.prompt_tokens;
    const std::int64_t before = drawn_;
    run.decode = timed(watch, [&] { return core_.is_idle(); });
    run.decode.tokens = drawn_ - before;
    run.prefill.fuses_layers = prompt_fuses;
    run.decode.fuses_layers = token_fuses;
    trace.enable(false);
    trace.separate_layers(false);
    return run;
  }

  static EngineOptions engine_options(const EngineRunOptions& options) {
    EngineOptions engine;
    engine.context = checked_add(checked_add(options.prompt_tokens, options.decode_tokens), 1);
    engine.max_sequences = 1;
    engine.prefix_cache = false;  // every run reads the whole prompt
    return engine;
  }

  void submit() {
    drawn_ = 0;
    const auto state = std::make_shared<RequestHandle::State>(
        0, 1, false, [this](const Event& event) { drawn_ += event.kind == Event::Kind::token; });
    GenerateOptions options{.max_tokens = options_.decode_tokens + 1, .ignore_eos = true};
    options.sampling.greedy = true;
    auto choice = std::make_unique<engine::Choice>(model_.config(), nullptr, options, prompt_);
    choice->state = state;
    choice->submitted = Clock::now();
    choice->usage.prompt_tokens = std::ssize(prompt_);
    core_.add(std::move(choice));
  }

  template <typename Done>
  PhaseRun timed(Watch watch, Done&& done) {
    PhaseRun phase;
    ctx_.trace().clear();
    std::optional<CallOrder> order;
    std::optional<KernelWatch> kernels;
    if (watch == Watch::trace) order.emplace(ctx_);
    const bool labels = watch == Watch::trace && KernelWatch::names_kernels();
    if (watch == Watch::kernels || labels) kernels.emplace(ctx_);
    const Clock::time_point start = Clock::now();
    while (!done() && core_.step()) ++phase.steps;
    ctx_.synchronize();
    const double seconds = seconds_since(start);
    if (kernels) phase.kernels = kernels->take();
    if (order) phase.order = order->take();
    phase.tracing_seconds = ctx_.trace().overhead_seconds();
    phase.seconds = seconds - phase.tracing_seconds;
    phase.entries = ctx_.trace().entries();
    ctx_.trace().clear();
    return phase;
  }

  Context& ctx_;
  const Model& model_;
  EngineRunOptions options_;
  engine::EngineCore core_;  // refuses a prompt that no memory holds before it is made
  std::vector<std::int32_t> prompt_;
  std::int64_t drawn_ = 0;
};

EngineRunner::EngineRunner(Context& ctx, const Model& model, const EngineRunOptions& options)
    : impl_(std::make_unique<Impl>(ctx, model, options)) {}
EngineRunner::~EngineRunner() = default;
EngineRun EngineRunner::run() { return impl_->run(impl_->traces()); }
EngineRun EngineRunner::run(bool trace) { return impl_->run(trace); }

std::vector<std::int32_t> random_ids(std::int64_t count, std::int64_t vocab) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) {
    const PhiloxWords drawn = philox(1, {static_cast<std::uint32_t>(i), 0, 0, 0});
    ids.push_back(static_cast<std::int32_t>(drawn[0] % static_cast<std::uint32_t>(vocab)));
  }
  return ids;
}

EngineRun run_engine(Context& ctx, const Model& model, const EngineRunOptions& options) {
  return EngineRunner(ctx, model, options).run();
}

std::vector<EngineRun> repeat_engine(Context& ctx, const Model& model,
                                     const EngineRunOptions& options, int repeats) {
  EngineRunner runner(ctx, model, options);
  runner.run();  // a warm-up
  std::vector<EngineRun> runs;
  runs.reserve(static_cast<std::size_t>(repeats));
  for (int i = 0; i < repeats; ++i) runs.push_back(runner.run());
  return runs;
}

const PhaseRun& median_phase(const std::vector<EngineRun>& runs, PhaseRun EngineRun::*phase) {
  std::vector<const PhaseRun*> phases;
  phases.reserve(runs.size());
  for (const EngineRun& run : runs) phases.push_back(&(run.*phase));
  std::sort(phases.begin(), phases.end(),
            [](const PhaseRun* a, const PhaseRun* b) { return a->seconds < b->seconds; });
  return *phases[phases.size() / 2];
}

}  // namespace tessera::profile
