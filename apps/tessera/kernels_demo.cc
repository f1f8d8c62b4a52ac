// tessera demo --kernels: attention, a 4-bit linear layer and a transformer block, each timed
// beside plain code for the same, and checked against float64.
#include "kernels_demo.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reference/attention.h"
#include "reference/error.h"
#include "reference/linear.h"
#include "reference/modules.h"
#include "tessera/tessera.h"

namespace tessera::app {
namespace {

using reference::Array;
using reference::relative_error;

// ---- one line of the table ----------------------------------------------------------------------

struct KernelRow {
  std::string what;
  double ms, plain_ms;
  std::int64_t bytes, plain_bytes;
  double error;  // ||out - float64|| / ||float64||
  double bound;  // what the error may be

  bool holds() const { return error <= bound; }
};

// Median of at least five runs and a fifth of a second, in milliseconds.
template <typename F>
double median_ms(F&& run) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  run();  // the workspace grows, and caches fill
  const auto begin = Clock::now();
  while (times.size() < 5 || Clock::now() - begin < std::chrono::milliseconds(200)) {
    const auto start = Clock::now();
    run();
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

// A tensor of f32 and its memory, filled with reproducible noise.
class Values {
 public:
  Values(std::initializer_list<std::int64_t> shape, std::uint32_t seed)
      : buffer_(DType::f32, shape), tensor_(buffer_.tensor(DType::f32, shape)) {
    std::uint32_t state = seed * 2654435761u + 1;
    for (std::int64_t i = 0; i < tensor_.numel(); ++i) {
      state = state * 1664525u + 1013904223u;  // a linear congruential generator will do here
      tensor_.ptr<float>()[i] = static_cast<float>(state >> 8) / (1 << 23) - 1.f;
    }
  }
  operator const Tensor&() const { return tensor_; }
  Array array() const { return reference::to_array(tensor_); }

 private:
  Buffer buffer_;
  Tensor tensor_;
};

// ---- attention ----------------------------------------------------------------------------------

// The textbook: all scores in memory, then softmax, then the weighted sum. [seq, heads, dim]
void plain_causal_attention(const float* q, const float* k, const float* v, float* out,
                            std::int64_t seq, std::int64_t heads, std::int64_t dim,
                            std::vector<float>& scores) {
  const float scale = 1.f / std::sqrt(static_cast<float>(dim));
  const auto at = [&](std::int64_t s, std::int64_t h) { return (s * heads + h) * dim; };
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t i = 0; i < seq; ++i) {
      float* row = scores.data() + i * seq;
      float largest = -INFINITY, total = 0.f;
      for (std::int64_t j = 0; j <= i; ++j) {
        float score = 0.f;
        for (std::int64_t d = 0; d < dim; ++d) score += q[at(i, h) + d] * k[at(j, h) + d];
        row[j] = score * scale;
        largest = std::max(largest, row[j]);
      }
      for (std::int64_t j = 0; j <= i; ++j) total += row[j] = std::exp(row[j] - largest);
      std::fill_n(out + at(i, h), dim, 0.f);
      for (std::int64_t j = 0; j <= i; ++j) {
        for (std::int64_t d = 0; d < dim; ++d)
          out[at(i, h) + d] += row[j] / total * v[at(j, h) + d];
      }
    }
  }
}

KernelRow show_attention(int threads) {
  const std::int64_t seq = 1024, heads = 4, dim = 64;
  Context ctx({.threads = threads});
  const Values q({1, seq, heads, dim}, 1), k({1, seq, heads, dim}, 2), v({1, seq, heads, dim}, 3);
  const Values out({1, seq, heads, dim}, 4), plain_out({1, seq, heads, dim}, 5);
  const auto ours = [&] {
    attention(ctx, {.q = q, .k = k, .v = v, .out = out, .mask = Mask::causal()});
  };
  std::vector<float> scores(static_cast<std::size_t>(seq * seq));
  const auto data = [](const Tensor& t) { return t.ptr<float>(); };
  const auto plain = [&] {
    plain_causal_attention(data(q), data(k), data(v), data(plain_out), seq, heads, dim, scores);
  };
  KernelRow row{
      .what = fmt::format("attention, causal, {} tokens, {} heads of {}", seq, heads, dim),
      .ms = median_ms(ours),
      .plain_ms = median_ms(plain),
      .bytes = ctx.workspace_peak_bytes(),
      .plain_bytes = static_cast<std::int64_t>(scores.size() * sizeof(float)),
      .error = 0,
      .bound = 1e-5};
  row.error = relative_error(
      out.array(),
      reference::attention({.q = q.array(), .k = k.array(), .v = v.array(), .mask = Mask::causal()})
          .out);
  return row;
}

// ---- a 4-bit linear layer -----------------------------------------------------------------------

// More packed weights than any cache holds, used in turn: a model's come from memory, too.
constexpr std::int64_t kStreamedBytes = std::int64_t{128} << 20;

KernelRow show_linear(int threads, Activations activations, double bound) {
  const std::int64_t in = 4096, out_features = 4096;
  Context ctx({.threads = threads, .activations = activations});
  const Linear dense(ctx, in, out_features, Activation::gelu);
  const Values x({1, in}, 6), out({1, out_features}, 7);
  const PackedWeight published = quantize(ctx, dense.weight().data);
  std::vector<PackedWeight> packed;
  for (std::int64_t held = 0; held < kStreamedBytes; held += published.weight.bytes()) {
    packed.push_back(prepare(ctx, published.weight));
  }
  std::size_t turn = 0;
  const auto ours = [&] {
    linear(ctx, {.x = x,
                 .weight = packed[turn++ % packed.size()].weight,
                 .bias = dense.bias(),
                 .activation = dense.activation(),
                 .out = out});
  };
  KernelRow row{.what = fmt::format(
                    "FP4 linear + gelu, {} -> {}, {}", in, out_features,
                    activations == Activations::exact ? "exact activations" : "8-bit activations"),
                .ms = median_ms(ours),
                .plain_ms = 0,
                .bytes = packed[0].weight.bytes() + dense.bias().bytes(),
                .plain_bytes = dense.bytes(),
                .error = 0,
                .bound = bound};
  const reference::LinearWeights decoded = reference::weights_of(ctx, dense, Format::nvfp4);
  row.error = relative_error(
      out.array(), reference::linear(x.array(), decoded.weight, decoded.bias, decoded.activation));
  row.plain_ms = median_ms([&] { dense.forward(ctx, x, out); });
  return row;
}

// ---- a transformer block ------------------------------------------------------------------------

KernelRow show_block(int threads) {
  const std::int64_t d_model = 512, heads = 8, d_ff = 2048, seq = 16;
  Context ctx({.threads = threads, .activations = Activations::int8});
  TransformerBlock block(ctx, d_model, heads, d_ff,
                         {.parallel_residual = true, .attention = {.rotary_dims = 16}});
  const Values x({1, seq, d_model}, 8), out({1, seq, d_model}, 9);
  const double plain_ms = median_ms([&] { block.forward(ctx, x, out); });
  const std::int64_t plain_bytes = block.bytes();
  const PrecisionPlan plan;
  const reference::BlockWeights decoded = reference::weights_of(ctx, block, plan);
  block.quantize(ctx, plan);
  KernelRow row{
      .what = fmt::format("transformer block, FP4, {} x {}, {} tokens", d_model, d_ff, seq),
      .ms = median_ms([&] { block.forward(ctx, x, out); }),
      .plain_ms = plain_ms,
      .bytes = block.bytes(),
      .plain_bytes = plain_bytes,
      .error = 0,
      .bound = 0.01};
  row.error = relative_error(out.array(), transformer_block(decoded, x.array(), Mask::causal()));
  return row;
}

// ---- the output ---------------------------------------------------------------------------------

std::string size_text(std::int64_t bytes) {
  return bytes < (1 << 20) ? fmt::format("{:.0f} KiB", static_cast<double>(bytes) / (1 << 10))
                           : fmt::format("{:.2f} MiB", static_cast<double>(bytes) / (1 << 20));
}

void print_kernels_header(int threads) {
  fmt::print(
      "Each line compares Tessera with plain code (textbook attention; f32 weights), and gives "
      "its\nerror against float64.\n");
  fmt::print("{} threads, {}\n\n", threads, devices()[0].name);
  fmt::print("{:<52} {:>9} {:>9} {:>7} {:>10} {:>10} {:>9}\n", "", "time", "plain", "faster",
             "memory", "plain", "error");
}

void print_row(const KernelRow& row) {
  fmt::print("{:<52} {:>6.2f} ms {:>6.2f} ms {:>6.1f}x {:>10} {:>10} {:>9.1e}  {}\n", row.what,
             row.ms, row.plain_ms, row.plain_ms / row.ms, size_text(row.bytes),
             size_text(row.plain_bytes), row.error, row.holds() ? "ok" : "WRONG");
  std::fflush(stdout);
}

nlohmann::json kernel_json(const KernelRow& row) {
  return {{"what", row.what},
          {"ms", row.ms},
          {"plain_ms", row.plain_ms},
          {"bytes", row.bytes},
          {"plain_bytes", row.plain_bytes},
          {"relative_error", row.error},
          {"error_bound", row.bound},
          {"ok", row.holds()}};
}

}  // namespace

int run_kernels_demo(int threads, bool json) {
  const int used = Context({.threads = threads}).threads();
  if (!json) print_kernels_header(used);
  bool all_hold = true;
  nlohmann::json rows = nlohmann::json::array();
  const auto show = [&](const KernelRow& row) {
    all_hold = all_hold && row.holds();
    if (json) {
      rows.push_back(kernel_json(row));
    } else {
      print_row(row);
    }
  };
  show(show_attention(threads));
  show(show_linear(threads, Activations::exact, 1e-5));
  show(show_linear(threads, Activations::int8, 0.01));
  show(show_block(threads));
  if (json) {
    fmt::print("{}\n", nlohmann::json{{"threads", used}, {"rows", rows}, {"ok", all_hold}}.dump(2));
  } else {
    fmt::print("\n{}\n", all_hold ? "All results agree with float64 within their bounds."
                                  : "A result is outside its bound: please report this.");
  }
  return all_hold ? 0 : 1;
}

}  // namespace tessera::app
