// A model against its own float64 twin: hidden states, greedy tokens, the calls that were made, and
// the time that a token takes.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "reference/model.h"
#include "reference/parity.h"
#include "tessera/trace.h"
#include "verify.h"

namespace tessera::app {
namespace {

using reference::Array;

constexpr std::int64_t kPromptTokens = 24, kNewTokens = 16;

// The same ids for every run: spread over the vocabulary.
std::vector<std::int32_t> fixed_prompt(const ModelConfig& config) {
  std::vector<std::int32_t> ids;
  if (config.bos >= 0 && config.bos < config.vocab) {
    ids.push_back(static_cast<std::int32_t>(config.bos));
  }
  std::uint64_t state = 1;
  while (static_cast<std::int64_t>(ids.size()) < kPromptTokens) {
    state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth's generator
    ids.push_back(
        static_cast<std::int32_t>((state >> 33) % static_cast<std::uint64_t>(config.vocab)));
  }
  return ids;
}

VerifyCheck level_check(std::string name, const reference::Observed& actual,
                        const std::vector<Array>& levels, const Array& logits, double bound) {
  const auto layers = static_cast<std::int64_t>(levels.size()) - 1;
  VerifyCheck check{.name = std::move(name), .verdict = {}};
  for (std::size_t i = 0; i < levels.size(); ++i) {
    check.rows.push_back(level_row(level_name(static_cast<std::int64_t>(i), layers),
                                   actual.levels[i], levels[i], bound));
  }
  check.rows.push_back(level_row("logits", actual.logits, logits, bound));
  check.verdict =
      fmt::format("{} levels and the logits of {} tokens", levels.size(), logits.size(0));
  return check;
}

// ---- the trace ----------------------------------------------------------------------------------

struct ExpectedCalls {
  const char* op;
  std::int64_t calls;
  const char* what;  // of one layer, and beside the layers
};

// What one decoding step calls: residuals and activations have no ops of their own, as they are
// fused into linear's last step.
std::vector<ExpectedCalls> expected_calls(const ModelConfig& config) {
  const std::int64_t layers = config.layers;
  if (config.architecture == Architecture::gpt_neox) {
    return {{"embedding", 1, "the token"},
            {"layer_norm", 2 * layers + 1, "2 per layer, 1 at the end"},
            {"linear", 4 * layers + 1, "qkv, dense + residual, up + activation, down + residual"},
            {"rotary", layers, "query and key in one call, in place"},
            {"kv_append", layers, "key and value in one call"},
            {"attention", layers, "paged, all heads in one call"}};
  }
  const std::int64_t norms = config.qk_norm ? 4 : 2;
  return {{"embedding", 1, "the token"},
          {"rms_norm", norms * layers + 1,
           config.qk_norm ? "4 per layer, 1 at the end" : "2 per layer, 1 at the end"},
          {"linear", 5 * layers + 1, "q, k, v, output + residual, down + residual"},
          {"gated_linear", layers, "gate, activation, up and their product in one call"},
          {"rotary", layers, "query and key in one call, in place"},
          {"kv_append", layers, "key and value in one call"},
          {"attention", layers, "paged, all heads in one call"}};
}

VerifyCheck trace_check(const VerifySubject& subject, const std::vector<std::int32_t>& prompt) {
  Trace& trace = subject.ctx.trace();
  const auto calls_of = [&](std::int64_t tokens) {
    trace.clear();
    trace.enable();
    reference::generate_greedy(subject.ctx, subject.model, prompt, tokens);
    trace.enable(false);
  };
  VerifyCheck check{.name = "fused calls", .verdict = {}};
  const std::vector<ExpectedCalls> expected = expected_calls(subject.model.config());
  // Two runs differ by exactly one decoding step.
  calls_of(1);
  std::vector<std::int64_t> before;
  before.reserve(expected.size());
  std::int64_t total = 0;
  for (const TraceEntry& entry : trace.entries()) total -= entry.calls;
  for (const ExpectedCalls& op : expected) before.push_back(trace.calls(op.op));
  calls_of(2);
  for (const TraceEntry& entry : trace.entries()) total += entry.calls;

  std::int64_t known = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::int64_t calls = trace.calls(expected[i].op) - before[i];
    known += calls;
    std::vector<std::string> kernels;
    for (const TraceEntry& entry : trace.entries()) {
      const bool seen = std::find(kernels.begin(), kernels.end(), entry.kernel) != kernels.end();
      if (entry.op == expected[i].op && !seen) kernels.push_back(entry.kernel);
    }
    check.rows.push_back({.what = expected[i].op,
                          .text = fmt::format("{} of {} calls: {} ({})", calls, expected[i].calls,
                                              expected[i].what, fmt::join(kernels, ", ")),
                          .ok = calls == expected[i].calls});
  }
  check.rows.push_back({.what = "others",
                        .text = fmt::format("{} calls of other ops", total - known),
                        .ok = total == known});
  check.verdict = fmt::format("{} op calls per decoded token", total);
  trace.clear();
  return check;
}

// ---- time ---------------------------------------------------------------------------------------

VerifyCheck time_check(const VerifySubject& subject, const std::vector<std::int32_t>& prompt) {
  constexpr std::int64_t kTimedTokens = 64;
  std::vector<double> times =
      reference::generate_greedy(subject.ctx, subject.model, prompt, kTimedTokens).seconds;
  std::sort(times.begin(), times.end());
  const auto ms = [&](double share) {
    return 1e3 * times[static_cast<std::size_t>(share * static_cast<double>(times.size() - 1))];
  };
  VerifyCheck check{.name = "time per output token", .verdict = {}};
  check.rows.push_back(
      {.what = "decode",
       .text = fmt::format("median {:.3f} ms ({:.1f} tokens/s), quartiles {:.3f} "
                           "and {:.3f} ms, over {} tokens",
                           ms(0.5), 1e3 / ms(0.5), ms(0.25), ms(0.75), times.size()),
       .ok = times.front() > 0});
  check.verdict = fmt::format("{:.3f} ms", ms(0.5));
  return check;
}

// ---- a GPU beside the CPU -----------------------------------------------------------------------

VerifyCheck cpu_check(const VerifySubject& subject, const std::vector<std::int32_t>& text,
                      const reference::Observed& actual) {
  Context cpu({.threads = subject.ctx.threads()});
  LoadOptions options = subject.options;
  options.dtype = DType::f32;
  const auto twin = load_model(cpu, subject.directory, options);
  const reference::Observed expected = reference::observe(cpu, *twin, text);
  return level_check("the CPU in f32", actual, expected.levels, expected.logits, subject.bound);
}

}  // namespace

std::vector<VerifyCheck> verify_by_reference(const VerifySubject& subject) {
  const std::vector<std::int32_t> prompt = fixed_prompt(subject.model.config());
  const auto generated =
      reference::generate_greedy(subject.ctx, subject.model, prompt, kNewTokens).ids;
  // One pass of the reference over prompt and continuation: where it would have chosen the same
  // token at every place, it would have written the same text.
  std::vector<std::int32_t> text = prompt;
  text.insert(text.end(), generated.begin(), generated.end() - 1);
  Context cpu({.threads = subject.ctx.threads()});
  const auto expected =
      reference::ReferenceModel(cpu, subject.directory, subject.options).forward(text);
  const reference::Observed actual = reference::observe(subject.ctx, subject.model, text);

  Array last({kNewTokens, expected.logits.size(1)});
  std::copy(expected.logits.data.end() - last.numel(), expected.logits.data.end(),
            last.data.begin());
  std::vector<VerifyCheck> checks{
      level_check("hidden states", actual, expected.levels, expected.logits, subject.bound),
      token_check(generated, reference::argmax_rows(last), last, subject)};
  if (!subject.ctx.device().is_cpu()) checks.push_back(cpu_check(subject, text, actual));
  checks.push_back(trace_check(subject, prompt));
  checks.push_back(time_check(subject, prompt));
  return checks;
}

}  // namespace tessera::app
