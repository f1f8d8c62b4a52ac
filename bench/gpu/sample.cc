// sample() over rows as long as vocabularies, compared with copying the logits to the host and
// drawing there.
#include "tessera/sample.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "noise.h"
#include "options.h"
#include "row.h"
#include "tessera/sampling.h"
#include "timer.h"

namespace tessera::bench {
namespace {

struct SampleOptions {
  std::vector<std::int64_t> widths{50304, 151936};
};

struct Mode {
  const char* name;
  SamplingOptions options;
};
const Mode kModes[] = {
    {"greedy", {.greedy = true}},
    {"temperature 0.8", {.temperature = 0.8}},
    {"top-k 50", {.top_k = 50}},
    {"top-p 0.9", {.top_p = 0.9}},
    {"top-p 0.9, temperature 2", {.temperature = 2, .top_p = 0.9}},
    {"top-k 50, top-p 0.9, min-p 0.05", {.top_k = 50, .top_p = 0.9, .min_p = 0.05}},
};

// The median of 31 calls on the host's clock, after one warm-up, in microseconds.
double wall_us(const std::function<void(int)>& call) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  for (int i = -1; i < 31; ++i) {
    const Clock::time_point start = Clock::now();
    call(std::max(i, 0));
    const std::chrono::duration<double, std::micro> elapsed = Clock::now() - start;
    if (i >= 0) times.push_back(elapsed.count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

class SampleBench {
 public:
  explicit SampleBench(std::int64_t width)
      : width_(width), ctx_({.device = Device::cuda()}), ids_(DType::i32, {1}, ctx_.device()) {
    const Noise noise(ctx_, 3.f);
    for (int i = 0; i < 32; ++i) {
      rows_.push_back(noise.matrix(DType::f32, 1, width, static_cast<std::uint32_t>(i)));
    }
    host_.resize(static_cast<std::size_t>(width));
  }

  void run(const Mode& mode, const Ceilings& ceilings) {
    Sampler here(mode.options), there(mode.options);
    const auto draw = [&](int i) {
      SampleArgs args = *there.next_draw();
      args.logits = rows_[static_cast<std::size_t>(i)].view;
      args.ids = ids_.tensor(DType::i32, {1});
      sample(ctx_, args);
    };
    const Time time = time_calls(ctx_, static_cast<int>(rows_.size()), draw);
    std::vector<std::int32_t> on_gpu, on_cpu;
    const double gpu = wall_us([&](int i) {
      draw(i);
      std::int32_t id = -1;
      copy_bytes(ctx_, &id, Device::cpu(), ids_.data(), ctx_.device(), 4);
      there.accept(id);
      on_gpu.push_back(id);
    });
    const double cpu = wall_us([&](int i) {
      const Tensor& row = rows_[static_cast<std::size_t>(i)].view;
      copy_bytes(ctx_, host_.data(), Device::cpu(), row.data, ctx_.device(), row.bytes());
      on_cpu.push_back(here.sample(host_, -1).token.id);
    });
    Row row{{"op", "sample"},
            {"mode", mode.name},
            {"width", width_},
            {"temperature", mode.options.greedy ? 0.0 : mode.options.temperature},
            {"top_k", mode.options.top_k},
            {"top_p", mode.options.top_p},
            {"min_p", mode.options.min_p}};
    add_time(row, time);
    row["floor"] = rounded(ceilings.floor_us(rows_[0].view.bytes()), 3);
    row["wall"] = rounded(gpu, 1);
    row["copied_wall"] = rounded(cpu, 1);
    row["same_tokens"] = on_gpu == on_cpu;
    print(row);
  }

 private:
  std::int64_t width_;
  Context ctx_;
  Buffer ids_;
  std::vector<Matrix> rows_;
  std::vector<float> host_;
};

}  // namespace

void add_sample(CLI::App& app) {
  const auto options = std::make_shared<SampleOptions>();
  CLI::App* command =
      app.add_subcommand("sample", "sample() beside a copy of the logits and the draw on the host");
  command->add_option("--widths", options->widths, "Vocabularies")->delimiter(',');
  command->callback([options] {
    Context ctx({.device = Device::cuda()});
    const Ceilings ceilings = measure_ceilings(ctx);
    print(ceilings);
    for (const std::int64_t width : options->widths) {
      SampleBench bench(width);
      for (const Mode& mode : kModes) bench.run(mode, ceilings);
    }
  });
}

}  // namespace tessera::bench
