// test_random: random calls of every op that has several kernels, each run by all kernels that take
// it, and compared: a GPU with the CPU, the CPU with the float64 twins.
//
//   test_random --seconds 60 --seed 7 --device cuda
//   test_random --device cuda --case "attention dtype=bf16 dim=64 ..."     one call again
//
// Ends with 0; 1 where a result was wrong; 2 where an option is; 3 where a call hangs.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/backend_state.h"
#include "core/cuda_runtime.h"
#include "core/fail.h"
#include "random/ops.h"
#include "support/devices.h"
#include "support/simd_targets.h"

namespace tessera::test {
namespace {

struct RandomOptions {
  double seconds = 5;
  std::uint64_t seed = 1;
  std::string device = "cpu", only, line;
  std::int64_t work = 1 << 22, calls = 0, hang_seconds = 60;
  bool verbose = false;
};

constexpr int kMostFailures = 10;

const RandomOp& op_named(const std::string& name) {
  std::string names;
  for (const RandomOp& op : random_ops()) {
    if (name == op.name) return op;
    names += std::string(names.empty() ? "" : ", ") + op.name;
  }
  fail(ErrorCode::invalid_argument, "there is no op {}; there are {}", name, names);
}

const RandomOp& draw_op(Draws& draws, const std::string& only) {
  if (!only.empty()) return op_named(only);
  int total = 0;
  for (const RandomOp& op : random_ops()) total += op.weight;
  auto at = static_cast<int>(draws.unnamed(total));
  for (const RandomOp& op : random_ops()) {
    if ((at -= op.weight) < 0) return op;
  }
  return random_ops().front();
}

// Runs calls and counts what happened.
class RandomRun {
 public:
  explicit RandomRun(const RandomOptions& options)
      : options_(options),
        device_(options.device == "cpu" ? Device::cpu() : Device::cuda()),
        watchdog_(std::chrono::seconds(options.hang_seconds), options.verbose) {
    if (const std::string reason = why_unusable(device_); !reason.empty()) {
      fail(ErrorCode::unsupported, "{}", reason);
    }
    ctx_ =
        std::make_unique<Context>(ContextOptions{.device = device_, .threads = 1, .trace = true});
    others_ = std::make_unique<Context>(ContextOptions{.device = device_, .threads = 3});
  }

  void repeat(const std::string& line) {
    const std::size_t space = std::min(line.find(' '), line.size());
    Draws draws{std::string_view(line).substr(space)};
    run(op_named(line.substr(0, space)), draws);
    if (const std::string name = draws.unused(); !name.empty()) {
      fail(ErrorCode::invalid_argument, "the call has no value {}", name);
    }
  }

  void run_for_a_while() {
    const auto begin = std::chrono::steady_clock::now();
    const std::chrono::duration<double> limit(options_.seconds);
    for (std::uint64_t i = 0; failures_ < kMostFailures; ++i) {
      if (options_.calls > 0 ? calls_ >= options_.calls
                             : std::chrono::steady_clock::now() - begin >= limit) {
        break;
      }
      Draws draws(options_.seed * 0x9e3779b97f4a7c15 + i);
      run(draw_op(draws, options_.only), draws);
    }
  }

  int finish() const {
    for (const auto& [op, kernels] : kernels_) {
      std::string text;
      for (const auto& [kernel, count] : kernels) text += fmt::format(", {} {}", kernel, count);
      fmt::print("{}: {}\n", op, text.substr(2));
    }
    fmt::print("{} calls on {}, seed {}: {}\n", calls_, options_.device, options_.seed,
               failures_ == 0 ? "all right" : fmt::format("{} FAILED", failures_));
    return failures_ == 0 ? 0 : 1;
  }

 private:
  void run(const RandomOp& op, Draws& draws) {
    std::optional<ForceSimdTarget> target;
    if (device_.is_cpu() && op.weight > 0) target.emplace(draw_target(draws));
    Trial trial(op.name, draws, *ctx_, *others_, options_.work, watchdog_);
    std::string problem;
    try {
      op.run(trial);
      if (!device_.is_cpu()) cuda::check_counters(*ctx_->backend_state());
    } catch (const std::exception& error) {
      problem = error.what();
    }
    watchdog_.end();
    ++calls_;
    count_kernels();
    if (problem.empty() && trial.problems().empty()) return;
    ++failures_;
    fmt::print("FAILED {}\n", trial.line());
    if (!problem.empty()) fmt::print("  it threw: {}\n", problem);
    for (const std::string& text : trial.problems()) fmt::print("  {}\n", text);
    fmt::print("  again: test_random --device {} --case \"{}\"\n", options_.device, trial.line());
    std::fflush(stdout);
  }

  static std::int64_t draw_target(Draws& draws) {
    std::vector<std::string> names;
    for (const std::int64_t target : simd_targets()) names.push_back(simd_target_name(target));
    return simd_targets()[draws.word("simd", names)];
  }

  void count_kernels() {
    for (const TraceEntry& entry : ctx_->trace().entries()) {
      kernels_[entry.op][entry.kernel] += entry.calls;
    }
    ctx_->trace().clear();
  }

  const RandomOptions& options_;
  Device device_;
  Watchdog watchdog_;
  std::unique_ptr<Context> ctx_, others_;
  std::map<std::string, std::map<std::string, std::int64_t>> kernels_;
  std::int64_t calls_ = 0;
  int failures_ = 0;
};

}  // namespace
}  // namespace tessera::test

int main(int argc, char** argv) {
  tessera::test::RandomOptions options;
  CLI::App app("Random calls of every op, by every kernel, compared with exact results");
  app.add_option("--seconds", options.seconds, "how long");
  app.add_option("--calls", options.calls, "a number of calls instead");
  app.add_option("--seed", options.seed, "the same seed draws the same calls");
  app.add_option("--device", options.device)->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--op", options.only, "calls of this op only");
  app.add_option("--case", options.line, "this call alone: a line that an earlier run printed");
  app.add_option("--work", options.work, "the most products of two numbers in a call");
  app.add_option("--hang", options.hang_seconds, "seconds after which a call hangs");
  app.add_flag("--verbose", options.verbose, "prints every call before it runs");
  CLI11_PARSE(app, argc, argv);
  try {
    tessera::test::RandomRun run(options);
    options.line.empty() ? run.run_for_a_while() : run.repeat(options.line);
    return run.finish();
  } catch (const std::exception& error) {
    fmt::print(stderr, "test_random: {}\n", error.what());
    return 2;
  }
}
