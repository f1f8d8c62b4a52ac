// The loop around the model for one stream: reads the prompt in steps, then writes one token at a
// time.
//
//   ids --StepRunner--> id --Generation--> text --> caller
//    ^                   |
//    +-------------------+
//
// On a GPU the next step is launched before the token of this one has been read, wherever the draw
// does not need the host. If the text ends with that token, the step was in vain: it is taken back.
#include "tessera/generate.h"

#include <chrono>

#include "engine/generation.h"
#include "engine/step_runner.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Returns false if it was cancelled on the way.
bool read_prompt(Context& ctx, KvCache& cache, StepRunner& runner, const Generation& generation,
                 std::span<const std::int32_t> prompt) {
  while (!prompt.empty()) {
    if (generation.is_cancelled()) return false;
    const std::size_t n = static_cast<std::size_t>(cache.step_size(std::ssize(prompt)));
    runner.forward(cache.step(ctx, prompt.first(n), n == prompt.size() ? 1 : 0));
    prompt = prompt.subspan(n);
  }
  return true;
}

bool has_room(const KvCache& cache) {
  const KvCacheOptions& options = cache.options();
  return options.policy.kind != CachePolicy::Kind::full || cache.seen() < options.max_tokens;
}

// Makes the tokens behind the first one.
class TokenLoop {
 public:
  TokenLoop(Context& ctx, KvCache& cache, StepRunner& runner, Generation& generation,
            std::vector<Sampled>& drawn)
      : ctx_(ctx), cache_(cache), runner_(runner), generation_(generation), drawn_(drawn) {}
  // The cache then holds the tokens that were delivered, but for the last, whatever ended the loop.
  ~TokenLoop() {
    if (is_ahead_) cache_.truncate(cache_.seen() - 1);
  }
  TokenLoop(const TokenLoop&) = delete;
  TokenLoop& operator=(const TokenLoop&) = delete;

  // Whether the token that was drawn last can be stored.
  bool has_room() const { return is_ahead_ || tessera::has_room(cache_); }

  // Runs the last token through the model, and draws the next one.
  void make_next() {
    const std::int32_t last = generation_.result().ids.back();
    Draw draw = make_draw(0);
    if (!runner_.can_start({&draw, 1})) {
      runner_.forward(cache_.step(ctx_, {&last, 1}, 1));
      runner_.draw({&draw, 1});
    } else {
      if (!is_ahead_) runner_.start(cache_.step(ctx_, {&last, 1}, 1), {&draw, 1});
      is_ahead_ = false;
      if (wants_one_more()) start_ahead();
      runner_.finish({&draw, 1});
    }
    if (draw.error) std::rethrow_exception(draw.error);
  }

 private:
  Draw make_draw(std::uint64_t ahead) {
    return {.sampler = &generation_.sampler(),
            .ahead = ahead,
            .top_logprobs = generation_.options().top_logprobs,
            .drawn = &drawn_};
  }
  // Is there a token behind the one that is under way, as far as one can know?
  bool wants_one_more() const {
    const std::int64_t most = generation_.options().max_tokens;
    return (most < 0 || std::ssize(generation_.result().ids) + 1 < most) &&
           tessera::has_room(cache_);
  }
  void start_ahead() {
    const std::int32_t name = AheadDraws::name_of(0);
    const Draw draw = make_draw(1);
    const CacheStep& step = cache_.step(ctx_, {&name, 1}, 1);
    is_ahead_ = true;
    runner_.start(step, {&draw, 1});
  }

  Context& ctx_;
  KvCache& cache_;
  StepRunner& runner_;
  Generation& generation_;
  std::vector<Sampled>& drawn_;
  bool is_ahead_ = false;  // the cache has a step whose token has not been drawn from
};

}  // namespace

std::string_view name(StopReason reason) {
  switch (reason) {
    case StopReason::max_tokens:
      return "max_tokens";
    case StopReason::eos:
      return "eos";
    case StopReason::stop_string:
      return "stop_string";
    case StopReason::cancelled:
      return "cancelled";
    case StopReason::context_full:
      return "context_full";
    case StopReason::deadline:
      return "deadline";
  }
  return "unknown";
}

GenerateResult generate(Context& ctx, const Model& model, KvCache& cache,
                        const Tokenizer* tokenizer, std::span<const std::int32_t> prompt,
                        const GenerateOptions& options,
                        const std::function<void(const GeneratedToken&)>& on_token) {
  const Clock::time_point start = Clock::now();
  check_generation(options, tokenizer, prompt, model.config().vocab);
  Generation generation(model.config(), tokenizer, options, prompt);
  GenerateResult& result = generation.result();
  model.reserve_workspace(ctx, cache.options(), 1);
  StepRunner runner(ctx, model, 1);
  if (!read_prompt(ctx, cache, runner, generation, prompt)) {
    generation.end(StopReason::cancelled);
    return std::move(result);
  }
  ctx.synchronize();
  result.prefill_seconds = seconds_since(start);

  std::vector<Sampled> drawn;
  Draw draw{
      .sampler = &generation.sampler(), .top_logprobs = options.top_logprobs, .drawn = &drawn};
  runner.draw({&draw, 1});
  if (draw.error) std::rethrow_exception(draw.error);
  const Clock::time_point first = Clock::now();
  result.first_seconds = seconds_since(start);
  TokenLoop loop(ctx, cache, runner, generation, drawn);
  while (true) {
    const GeneratedToken token = generation.take(drawn.front(), loop.has_room());
    result.decode_seconds = seconds_since(first);
    if (on_token) on_token(token);
    if (generation.reason()) return std::move(result);
    loop.make_next();
  }
}

}  // namespace tessera
