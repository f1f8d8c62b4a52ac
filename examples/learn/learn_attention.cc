// learn_attention: the steps of docs/LEARN.md on this machine's GPU. Each is checked against a
// float64 reference, then timed; the kernels that attention() itself chooses from come last, to
// show what is left to gain.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/fail.h"
#include "core/half.h"
#include "cuda/attention/choose.h"
#include "cuda/runtime/state.h"
#include "forced_kernel.h"
#include "learn.h"
#include "noise.h"
#include "reference/attention.h"
#include "reference/error.h"
#include "tessera/attention.h"
#include "tessera/buffer.h"
#include "timer.h"

namespace tessera::learn {
namespace {

struct Options {
  std::int64_t tokens = 4096, heads = 32;
  std::vector<int> steps{};  // all
  bool json = false, once = false;

  bool wants(int step) const {
    return steps.empty() || std::find(steps.begin(), steps.end(), step) != steps.end();
  }
};

// ---- tensors ------------------------------------------------------------------------------------

// The memory that steps 1 and 2 may take for their scores. Longer sequences are left to the others.
constexpr double kMostScoreBytes = 8e9;
double score_bytes(double heads, double tokens) { return 4 * heads * tokens * tokens; }

struct Tensors {
  bench::Matrix q, k, v, out;  // [heads * tokens, 64]
  Buffer scores;

  Tensors(Context& ctx, int heads, int tokens) {
    const bench::Noise noise(ctx, 1.f);
    std::uint32_t seed = 1;
    for (bench::Matrix* made : {&q, &k, &v, &out}) {
      *made = noise.matrix(DType::f16, std::int64_t{heads} * tokens, kDim, seed++);
    }
    if (score_bytes(heads, tokens) > kMostScoreBytes) return;
    scores = Buffer(DType::f32, {std::int64_t{heads} * tokens, tokens}, ctx.device());
  }

  Problem problem(int heads, int tokens, bool causal) const {
    return {.q = q.view.ptr<const __half>(),
            .k = k.view.ptr<const __half>(),
            .v = v.view.ptr<const __half>(),
            .out = out.view.ptr<__half>(),
            .scores = static_cast<float*>(scores.data()),
            .heads = heads,
            .tokens = tokens,
            .causal = causal};
  }
};

// The same tensors as attention() takes them: each head is a sequence of one head.
AttentionArgs attention_args(const Tensors& t, const Problem& p) {
  const auto view = [&](const bench::Matrix& matrix) {
    return matrix.view.view({p.heads, p.tokens, 1, kDim});
  };
  return {.q = view(t.q),
          .k = view(t.k),
          .v = view(t.v),
          .out = view(t.out),
          .mask = p.causal ? Mask::causal() : Mask::full()};
}

// ---- what is measured ---------------------------------------------------------------------------

// A step, or a kernel of attention().
struct Candidate {
  std::string name, idea;
  bool causal;
  std::function<void(const Tensors&, const Problem&)> run;
};

std::vector<Candidate> candidates(Context& ctx, const Tensors& tensors, const Problem& problem,
                                  const Options& options) {
  std::vector<Candidate> all;
  int number = 0;
  for (const int step : options.steps) {
    if (step > static_cast<int>(steps().size())) {
      fail(ErrorCode::unsupported, "this build has no code for step {}: build it for 90a", step);
    }
  }
  const int capability = cuda::state_of(ctx).limits().capability;
  for (const Step& step : steps()) {
    if (!options.wants(++number)) continue;
    if (!step.runs_on(capability)) {
      fmt::print(stderr,
                 "learn_attention: {} needs compute capability {}.{}{}; this GPU has {}.{}\n",
                 step.name, step.capability / 10, step.capability % 10,
                 step.exactly ? " and no other" : " or later", capability / 10, capability % 10);
      continue;
    }
    if (step.stores_scores && tensors.scores.bytes() == 0) {
      fmt::print(stderr, "learn_attention: {} is left out: its scores take {:.0f} GB of memory\n",
                 step.name, 1e-9 * score_bytes(problem.heads, problem.tokens));
      continue;
    }
    all.push_back({step.name, step.idea, step.causal,
                   [&ctx, &step](const Tensors&, const Problem& p) { step.run(ctx, p); }});
  }
  if (!options.steps.empty()) return all;
  std::vector<const char*> chosen = cuda::attention_kernels(ctx, attention_args(tensors, problem));
  std::reverse(chosen.begin(), chosen.end());  // the kernel that attention() would run comes last
  for (const char* kernel : chosen) {
    if (std::string_view(kernel) == "cuda.plain") continue;  // slower than most steps
    all.push_back(
        {kernel, "what attention() has", true, [&ctx, kernel](const Tensors& t, const Problem& p) {
           const bench::ForcedKernel forced(ctx, kernel);
           attention(ctx, attention_args(t, p));
         }});
  }
  return all;
}

reference::Array read(Context& ctx, const bench::Matrix& matrix, int heads, int tokens) {
  std::vector<Half> halves(static_cast<std::size_t>(matrix.view.numel()));
  copy_bytes(ctx, halves.data(), Device::cpu(), matrix.view.data, matrix.view.device,
             matrix.view.bytes());
  ctx.synchronize();
  reference::Array array({heads, tokens, 1, kDim});
  for (std::size_t i = 0; i < halves.size(); ++i) {
    array.data[i] = static_cast<double>(to_float(halves[i]));
  }
  return array;
}

// The larger of the errors with and without a mask, on a few tokens that fill no tile.
double error_of(Context& ctx, const Candidate& candidate) {
  constexpr int kHeads = 2, kTokens = 197;
  double largest = 0;
  for (const bool causal : {false, true}) {
    if (causal && !candidate.causal) continue;
    const Tensors t(ctx, kHeads, kTokens);
    candidate.run(t, t.problem(kHeads, kTokens, causal));
    const auto array = [&](const bench::Matrix& m) { return read(ctx, m, kHeads, kTokens); };
    const reference::AttentionResult exact =
        reference::attention({.q = array(t.q),
                              .k = array(t.k),
                              .v = array(t.v),
                              .mask = causal ? Mask::causal() : Mask::full()});
    const double error = reference::relative_error(array(t.out), exact.out);
    if (!(error < 1e-3)) {  // f16 rounds to one in 2048
      fail(ErrorCode::device,
           "{} is wrong: its relative error is {:.1e} where at most 1e-3 is expected",
           candidate.name, error);
    }
    largest = std::max(largest, error);
  }
  return largest;
}

struct Measured {
  std::string name, idea;
  double error;
  double full_us = 0, full_tflops = 0;
  std::optional<double> causal_us{}, causal_tflops{};
};

Measured measure(Context& ctx, const Candidate& candidate, const Tensors& t,
                 const Options& options) {
  Measured m{.name = candidate.name, .idea = candidate.idea, .error = error_of(ctx, candidate)};
  for (const bool causal : {false, true}) {
    if (causal && !candidate.causal) continue;
    const Problem p =
        t.problem(static_cast<int>(options.heads), static_cast<int>(options.tokens), causal);
    const double us = bench::time_calls(ctx, 1, [&](int) { candidate.run(t, p); }).us;
    const double tflops = p.flops() / us * 1e-6;
    if (causal) {
      m.causal_us = us;
      m.causal_tflops = tflops;
    } else {
      m.full_us = us;
      m.full_tflops = tflops;
    }
  }
  return m;
}

// ---- what is printed ----------------------------------------------------------------------------

void print_head(const Options& options, double rate) {
  if (options.json) {
    const nlohmann::ordered_json head{{"tokens", options.tokens},
                                      {"heads", options.heads},
                                      {"dim", kDim},
                                      {"matrix_tflop_per_s", rate}};
    return fmt::print("{}\n", head.dump());
  }
  fmt::print("{} heads of {} tokens. A large matrix product of the library: {:.0f} TFLOP/s.\n\n",
             options.heads, options.tokens, rate);
  fmt::print("{:<22} {:<39} {:>10} {:>8} {:>7} {:>10} {:>8} {:>7} {:>8}\n", "", "", "full, us",
             "TFLOP/s", "of rate", "causal, us", "TFLOP/s", "of rate", "error");
}

void print_row(const Measured& m, double rate, bool json) {
  if (json) {
    nlohmann::ordered_json row{{"step", m.name},
                               {"us", m.full_us},
                               {"tflop_per_s", m.full_tflops},
                               {"of_matrix_rate", m.full_tflops / rate}};
    if (m.causal_us) {
      row["causal_us"] = *m.causal_us;
      row["causal_tflop_per_s"] = *m.causal_tflops;
      row["causal_of_matrix_rate"] = *m.causal_tflops / rate;
    }
    row["rel"] = m.error;
    fmt::print("{}\n", row.dump());
  } else {
    fmt::print("{:<22} {:<39} {:>10.1f} {:>8.1f} {:>6.1f}%", m.name, m.idea, m.full_us,
               m.full_tflops, 100 * m.full_tflops / rate);
    if (m.causal_us) {
      fmt::print(" {:>10.1f} {:>8.1f} {:>6.1f}%", *m.causal_us, *m.causal_tflops,
                 100 * *m.causal_tflops / rate);
    } else {
      fmt::print(" {:>10} {:>8} {:>7}", "-", "-", "-");
    }
    fmt::print(" {:>8.1e}\n", m.error);
  }
  std::fflush(stdout);
}

void run(const Options& options) {
  Context ctx({.device = Device::cuda()});
  const int heads = static_cast<int>(options.heads), tokens = static_cast<int>(options.tokens);
  const Tensors tensors(ctx, heads, tokens);
  const Problem problem = tensors.problem(heads, tokens, false);
  const std::vector<Candidate> all = candidates(ctx, tensors, problem, options);
  if (options.once) {
    for (const Candidate& candidate : all) candidate.run(tensors, problem);
    return ctx.synchronize();
  }
  const double rate = bench::measure_ceilings(ctx).flops_per_s * 1e-12;
  print_head(options, rate);
  for (const Candidate& candidate : all) {
    print_row(measure(ctx, candidate, tensors, options), rate, options.json);
  }
}

}  // namespace
}  // namespace tessera::learn

int main(int argc, char** argv) {
  tessera::learn::Options options;
  CLI::App app(
      "The steps of docs/LEARN.md: attention forward, head dim 64, f16. Each is checked against a\n"
      "float64 reference, then timed (median of 15 graph replays). TFLOP/s count visible pairs.");
  app.add_option("--tokens", options.tokens, "Tokens of a sequence")
      ->check(CLI::Range(1, 32768))
      ->capture_default_str();
  app.add_option("--heads", options.heads, "Heads of all sequences together")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--steps", options.steps,
                 "1 to 8; without it, all steps and the kernels of attention()")
      ->delimiter(',')
      ->check(CLI::Range(1, 8));
  app.add_flag("--once", options.once, "For profilers: each step once, without a mask, not timed");
  app.add_flag("--json", options.json, "One JSON object on each line");
  CLI11_PARSE(app, argc, argv);
  try {
    tessera::learn::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "learn_attention: %s\n", error.what());
    return 1;
  }
  return 0;
}
