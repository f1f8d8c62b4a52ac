#include "generate_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/step_runner.h"
#include "profile/engine_run.h"
#include "profile/timing.h"
#include "rounded.h"
#include "tessera/generate.h"

namespace tessera::bench {
namespace {

using profile::Clock;
using profile::seconds_since;
using profile::Timing;

// The marks at which a token is timed. Later marks are compared with the one at 10 thousand: by
// then the stream has long outgrown its cache, and all work that is done once has been done.
constexpr std::int64_t kMarks[] = {2'000, 10'000, 100'000, 1'000'000, 4'000'000};
constexpr std::int64_t kComparedMark = 10'000;

// One stream. The last tokens before a mark are timed one by one, as a user gets them. All others
// are read in steps, like a prompt, because millions of single tokens would take minutes.
class Stream {
 public:
  Stream(Context& ctx, const Model& model, const StreamOptions& options, std::int64_t step)
      : ctx_(ctx),
        model_(model),
        step_(step),
        samples_(options.sample),
        ids_(profile::random_ids(kIds + step, model.config().vocab)),
        cache_(model.make_cache(ctx, CachePolicy::sinks(options.sinks, options.window), 0, step)) {}

  // Seconds of a token at this mark. A single token is too short to time, so blocks of tokens are
  // timed; the median of the blocks ignores other load on the machine. The first block warms up.
  double token_seconds_at(std::int64_t mark) {
    feed(mark - (kBlocks + 1) * kBlock, step_);
    std::vector<Clock::time_point> ends;  // of blocks
    if (samples_) {
      generate_blocks(ends);
    } else {
      for (std::int64_t left = kBlocks; left >= 0; --left) {
        feed(mark - left * kBlock, 1);
        ends.push_back(Clock::now());
      }
    }
    std::vector<double> seconds;
    for (std::size_t i = 1; i < ends.size(); ++i) {
      seconds.push_back(std::chrono::duration<double>(ends[i] - ends[i - 1]).count() / kBlock);
    }
    return Timing::of(std::move(seconds)).median;
  }

  const KvCache& cache() const { return cache_; }

 private:
  static constexpr std::int64_t kIds = 4096;  // after these, the same again
  static constexpr std::int64_t kBlock = 64, kBlocks = 25;

  // The last token that is drawn is not stored; the token that the call begins with is.
  void generate_blocks(std::vector<Clock::time_point>& ends) {
    runner_.reset();  // generate() has its own
    std::int64_t tokens = 0;
    const auto on_token = [&](const GeneratedToken&) {
      if (++tokens % kBlock == 0) ends.push_back(Clock::now());
    };
    generate(ctx_, model_, cache_, nullptr, {ids_.data(), 1},
             {.max_tokens = (kBlocks + 1) * kBlock,
              .ignore_eos = true,
              .sampling = {.temperature = 0.8, .seed = 1}},
             on_token);
  }
  void feed(std::int64_t until, std::int64_t step) {
    if (!runner_) runner_.emplace(ctx_, model_, 1);
    while (cache_.seen() < until) {
      const std::int64_t tokens = cache_.step_size(std::min(step, until - cache_.seen()));
      runner_->forward(cache_.step(ctx_, std::span<const std::int32_t>(ids_).subspan(
                                             static_cast<std::size_t>(cache_.seen() % kIds),
                                             static_cast<std::size_t>(tokens))));
    }
    ctx_.synchronize();
  }

  Context& ctx_;
  const Model& model_;
  std::int64_t step_;
  bool samples_;
  std::vector<std::int32_t> ids_;
  KvCache cache_;
  std::optional<StepRunner> runner_;
};

}  // namespace

void measure_stream(Context& ctx, const Model& model, const StreamOptions& options,
                    std::int64_t step, const std::string& model_name, const std::string& weights) {
  const Clock::time_point start = Clock::now();
  Stream stream(ctx, model, options, step);
  std::vector<std::int64_t> marks;
  std::copy_if(std::begin(kMarks), std::end(kMarks), std::back_inserter(marks),
               [&](std::int64_t mark) { return mark < options.tokens; });
  marks.push_back(options.tokens);
  double compared = 0;
  for (const std::int64_t mark : marks) {
    const double us = 1e6 * stream.token_seconds_at(mark);
    if (mark == kComparedMark) compared = us;
    nlohmann::json row{{"model", model_name},
                       {"weights", weights},
                       {"dtype", name(model.dtype())},
                       {"device", to_string(ctx.device())},
                       {"sinks", options.sinks},
                       {"window", options.window},
                       {"step", step},
                       {"sample", options.sample},
                       {"tokens", stream.cache().seen()},
                       {"us_per_token", rounded(us, 2)},
                       {"cache_bytes", stream.cache().bytes()},
                       {"workspace_bytes", ctx.workspace_bytes()},
                       {"seconds", rounded(seconds_since(start), 1)}};
    if (compared > 0) row["of_10000"] = rounded(us / compared, 4);
    fmt::print("{}\n", row.dump());
    std::fflush(stdout);
  }
}

}  // namespace tessera::bench
