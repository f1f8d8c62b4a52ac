// Hidden states and greedy tokens of a model against its float64 twin, and against the CPU in f32
// where it does not run there itself. Then its calls, and the time of a token.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "reference/model.h"
#include "reference/parity.h"
#include "verify.h"

namespace tessera::app {
namespace {

using reference::Array;

constexpr std::int64_t kNewTokens = 16;

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

// ---- the CPU in f32 -----------------------------------------------------------------------------

// The last rows, which chose the new tokens.
Array choosing_rows(const Array& logits) {
  Array last({kNewTokens, logits.size(1)});
  std::copy(logits.data.end() - last.numel(), logits.data.end(), last.data.begin());
  return last;
}

// Does the model compute as the CPU's kernels do in f32, with exact activations?
bool is_cpu_f32(const VerifySubject& subject) {
  return subject.ctx.device().is_cpu() && subject.model.dtype() == DType::f32 &&
         subject.ctx.activations() == Activations::exact;
}

// The same model on the CPU in f32, on the same text: its levels, and the tokens it chooses.
std::vector<VerifyCheck> against_cpu(const VerifySubject& subject,
                                     const std::vector<std::int32_t>& text,
                                     const std::vector<std::int32_t>& generated,
                                     const reference::Observed& actual) {
  Context cpu({.threads = subject.ctx.threads()});
  LoadOptions options = subject.options;
  options.dtype = DType::f32;
  const auto twin = load_model(cpu, subject.directory, options);
  const reference::Observed expected = reference::observe(cpu, *twin, text);
  const Array last = choosing_rows(expected.logits);
  VerifyCheck tokens = token_check(generated, reference::argmax_rows(last), last, subject);
  tokens.name = "tokens, CPU in f32";
  return {
      level_check("states, CPU in f32", actual, expected.levels, expected.logits, subject.bound),
      tokens};
}

}  // namespace

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

std::vector<VerifyCheck> verify_by_reference(const VerifySubject& subject) {
  const std::vector<std::int32_t> prompt = fixed_prompt(subject.model.config());
  const auto generated =
      reference::generate_greedy(subject.ctx, subject.model, prompt, kNewTokens).ids;
  // One pass of the reference over prompt and continuation is enough: if it chooses the same token
  // at every place, it would have written the same text.
  std::vector<std::int32_t> text = prompt;
  text.insert(text.end(), generated.begin(), generated.end() - 1);
  Context cpu({.threads = subject.ctx.threads()});
  const auto expected =
      reference::ReferenceModel(cpu, subject.directory, subject.options).forward(text);
  const reference::Observed actual = reference::observe(subject.ctx, subject.model, text);

  const Array last = choosing_rows(expected.logits);
  std::vector<VerifyCheck> checks{
      level_check("hidden states", actual, expected.levels, expected.logits, subject.bound),
      token_check(generated, reference::argmax_rows(last), last, subject)};
  if (!is_cpu_f32(subject)) {
    for (VerifyCheck& check : against_cpu(subject, text, generated, actual)) {
      checks.push_back(std::move(check));
    }
  }
  checks.push_back(verify_calls(subject));
  checks.push_back(time_check(subject, prompt));
  return checks;
}

}  // namespace tessera::app
