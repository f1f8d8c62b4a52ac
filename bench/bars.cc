// The speed bars: ratios that must hold on any machine. Both sides of a ratio are measured in the
// same run, in turns, and compared by their medians. Exits with 1 if a bar is missed.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/thread_pool.h"
#include "profile/ceilings.h"
#include "random_matrix.h"
#include "tessera/attention.h"
#include "tessera/linear.h"
#include "tessera/quant.h"

#if TESSERA_HAVE_OPENBLAS
#include <cblas.h>
#endif

namespace {

using namespace tessera;

// ---- measuring ----------------------------------------------------------------------------------

struct Timing {
  double median = 0, fastest = 0, slowest = 0;  // seconds
};

// Runs all of them in turns, so that other load on the machine affects them alike. Each call gets
// the number of the round.
std::vector<Timing> measure(const std::vector<std::function<void(int)>>& runs, int rounds) {
  using Clock = std::chrono::steady_clock;
  std::vector<std::vector<double>> seconds(runs.size());
  for (int round = -1; round < rounds; ++round) {  // the first is a warm-up
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const Clock::time_point start = Clock::now();
      runs[i](std::max(round, 0));
      const std::chrono::duration<double> elapsed = Clock::now() - start;
      if (round >= 0) seconds[i].push_back(elapsed.count());
    }
  }
  std::vector<Timing> timings;
  for (std::vector<double>& all : seconds) {
    std::sort(all.begin(), all.end());
    timings.push_back({all[all.size() / 2], all.front(), all.back()});
  }
  return timings;
}

class Report {
 public:
  void line(const std::string& what, const Timing& t, const std::string& note) {
    fmt::print("{:<42} {:>9.3f} ms  [{:.3f}, {:.3f}]  {}\n", what, t.median * 1e3, t.fastest * 1e3,
               t.slowest * 1e3, note);
  }
  void bar(const std::string& what, double ratio, double at_least) {
    const bool met = ratio >= at_least;
    fmt::print("  -> {}: {:.2f}x, bar {:.2f}x: {}\n", what, ratio, at_least,
               met ? "met" : "MISSED");
    missed_ += !met;
  }
  void skipped(const std::string& why) { fmt::print("  -> skipped: {}\n", why); }
  void section(const std::string& title) { fmt::print("\n{}\n", title); }
  int missed() const { return missed_; }

 private:
  int missed_ = 0;
};

// ---- data ---------------------------------------------------------------------------------------

Tensor matrix(const Buffer& buffer, std::int64_t rows, std::int64_t cols) {
  return buffer.tensor(DType::f32, {rows, cols});
}

// Enough weights, used in turns, that none is still in a cache when its turn comes again.
constexpr std::int64_t kStreamedBytes = std::int64_t{192} << 20;

int copies(std::int64_t bytes) { return static_cast<int>(kStreamedBytes / bytes + 1); }

// ---- f32 linear against OpenBLAS ----------------------------------------------------------------

void bar_f32_linear(Context& ctx, Report& report) {
  constexpr std::int64_t m = 512, n = 2048, k = 2048;
  report.section("f32 linear, 512 x 2048 x 2048");
  const Buffer x = random_matrix(m, k, 1, 1.f), w = random_matrix(n, k, 2, 0.02f);
  const Buffer out(DType::f32, {m, n}), peer_out(DType::f32, {m, n});
  const LinearArgs args{
      .x = matrix(x, m, k), .weight = Weight::dense(matrix(w, n, k)), .out = matrix(out, m, n)};
  std::vector<std::function<void(int)>> runs = {[&](int) { linear(ctx, args); }};
#if TESSERA_HAVE_OPENBLAS
  openblas_set_num_threads(ctx.threads());
  runs.emplace_back([&](int) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1.f,
                static_cast<const float*>(x.data()), k, static_cast<const float*>(w.data()), k, 0.f,
                static_cast<float*>(peer_out.data()), n);
  });
#endif
  const std::vector<Timing> times = measure(runs, 25);
  const auto rate = [&](const Timing& t) {
    return fmt::format("{:.0f} GFLOP/s", 2e-9 * m * n * k / t.median);
  };
  report.line("tessera", times[0], rate(times[0]));
#if TESSERA_HAVE_OPENBLAS
  report.line("OpenBLAS sgemm", times[1], rate(times[1]));
  report.bar("f32 linear against OpenBLAS", times[1].median / times[0].median, 0.7);
#else
  report.skipped("built without OpenBLAS; install libopenblas-dev and configure again");
#endif
}

// ---- packed weights against f32, one row --------------------------------------------------------

constexpr std::int64_t kDecodeSize = 4096;

// One case of decoding: copies of a weight, used in turns.
struct Decode {
  std::string name;
  std::vector<PackedWeight> weights{};
  Activations activations = Activations::exact;
  double bar = 0;  // how many times faster than f32 it must be; 0: reported only
};

std::vector<Decode> decode_cases(Context& ctx, const Tensor& dense) {
  const auto streamed = [&](const Weight& weight) {
    std::vector<PackedWeight> weights;
    for (int i = copies(weight.bytes()); i > 0; --i) weights.push_back(prepare(ctx, weight));
    return weights;
  };
  std::vector<Decode> cases;
  cases.push_back({.name = "f32", .weights = streamed(Weight::dense(dense))});
  const auto add = [&](const std::string& name, QuantizeOptions options, double bar) {
    options.search = ScaleSearch::from_max;
    const PackedWeight packed = quantize(ctx, dense, options);
    for (Activations activations : {Activations::int8, Activations::exact}) {
      const bool int8 = activations == Activations::int8;
      cases.push_back({.name = name + (int8 ? ", 8-bit activations" : ", exact"),
                       .weights = streamed(packed.weight),
                       .activations = activations,
                       .bar = int8 ? bar : 0});
    }
  };
  add("int8", {.format = Format::int8}, 1.6);
  add("nvfp4", {.format = Format::nvfp4}, 2.5);
  add("int4 in groups of 32", {.format = Format::int4, .group = 32}, 2.5);
  return cases;
}

void bar_decode(Context& ctx, Report& report) {
  constexpr std::int64_t n = kDecodeSize;
  report.section("decode: 1 row, 4096 x 4096, weights from memory");
  const double bandwidth = profile::measure_read_bandwidth(ctx);
  fmt::print("memory reads {:.1f} GB/s\n", bandwidth * 1e-9);
  const Buffer dense = random_matrix(n, n, 3, 0.02f), x = random_matrix(1, n, 4, 1.f);
  const Buffer out(DType::f32, {1, n});
  const std::vector<Decode> cases = decode_cases(ctx, matrix(dense, n, n));
  std::vector<std::function<void(int)>> runs;
  for (const Decode& c : cases) {
    runs.emplace_back([&](int round) {
      ctx.set_activations(c.activations);
      const std::size_t turn = static_cast<std::size_t>(round) % c.weights.size();
      linear(ctx,
             {.x = matrix(x, 1, n), .weight = c.weights[turn].weight, .out = matrix(out, 1, n)});
    });
  }
  const std::vector<Timing> times = measure(runs, 61);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const double rate = static_cast<double>(cases[i].weights[0].weight.bytes()) / times[i].median;
    report.line(cases[i].name, times[i],
                fmt::format("{:.1f} GB/s, {:.0f}% of memory", rate * 1e-9, 100 * rate / bandwidth));
    const double ratio = times[0].median / times[i].median;
    if (cases[i].bar > 0) report.bar(cases[i].name + " against f32", ratio, cases[i].bar);
  }
}

// ---- attention against three loops --------------------------------------------------------------

constexpr std::int64_t kHeadDim = 64;

// One head of causal attention, straight from the formula; [seq, heads, dim] in memory.
void naive_head(const float* q, const float* k, const float* v, std::int64_t seq,
                std::int64_t stride, float* out) {
  std::vector<float> scores(static_cast<std::size_t>(seq));
  for (std::int64_t i = 0; i < seq; ++i) {
    float largest = -INFINITY, total = 0.f;
    for (std::int64_t j = 0; j <= i; ++j) {
      float dot = 0.f;
      for (std::int64_t d = 0; d < kHeadDim; ++d) dot += q[i * stride + d] * k[j * stride + d];
      scores[j] = dot / std::sqrt(static_cast<float>(kHeadDim));
      largest = std::max(largest, scores[j]);
    }
    for (std::int64_t j = 0; j <= i; ++j) total += scores[j] = std::exp(scores[j] - largest);
    std::fill_n(out + i * stride, kHeadDim, 0.f);
    for (std::int64_t j = 0; j <= i; ++j) {
      for (std::int64_t d = 0; d < kHeadDim; ++d) {
        out[i * stride + d] += scores[j] / total * v[j * stride + d];
      }
    }
  }
}

// Both sides use all threads, because there is one head for each thread.
void bar_attention(Context& ctx, Report& report) {
  report.section("causal attention, head dimension 64, one head for each thread");
  constexpr std::int64_t kLong = 4096, kShort = 2048;
  const std::int64_t heads = ctx.threads(), width = heads * kHeadDim;
  const Buffer q = random_matrix(kLong, width, 5, 1.f), k = random_matrix(kLong, width, 6, 1.f);
  const Buffer v = random_matrix(kLong, width, 7, 1.f);
  const Buffer out(DType::f32, {kLong, width}), naive_out(DType::f32, {kLong, width});
  const auto ours = [&](std::int64_t seq) {
    const auto view = [&](const Buffer& buffer) {
      return buffer.tensor(DType::f32, {1, seq, heads, kHeadDim});
    };
    attention(ctx,
              {.q = view(q), .k = view(k), .v = view(v), .out = view(out), .mask = Mask::causal()});
  };
  const auto naive = [&](std::int64_t seq) {
    ctx.pool().parallel_for(heads, [&](std::int64_t head, int) {
      const auto start = [&](const Buffer& buffer) {
        return static_cast<float*>(buffer.data()) + head * kHeadDim;
      };
      naive_head(start(q), start(k), start(v), seq, width, start(naive_out));
    });
  };
  const std::vector<Timing> times = measure(
      {[&](int) { ours(kShort); }, [&](int) { ours(kLong); }, [&](int) { naive(kShort); }}, 7);
  const auto rate = [&](const Timing& t, double seq) {  // two products over half the square
    return fmt::format("{:.0f} GFLOP/s", 2e-9 * seq * seq * static_cast<double>(width) / t.median);
  };
  report.line("tessera, 2048", times[0], rate(times[0], kShort));
  report.line("tessera, 4096", times[1], rate(times[1], kLong));
  report.line("three loops, 2048", times[2], rate(times[2], kShort));
  report.bar("attention against three loops, 2048", times[2].median / times[0].median, 5.0);
  // Four times the work must take at most four times as long, with a tenth for noise.
  report.bar("growth from 2048 to 4096, of S^2", 4 * times[0].median / times[1].median, 0.9);
}

}  // namespace

int main() {
  Context ctx;
  Report report;
  fmt::print("{} threads\n", ctx.threads());
  bar_f32_linear(ctx, report);
  bar_decode(ctx, report);
  bar_attention(ctx, report);
  fmt::print("\n{}\n", report.missed() == 0 ? "every bar is met"
                                            : fmt::format("{} bars missed", report.missed()));
  return report.missed() == 0 ? 0 : 1;
}
