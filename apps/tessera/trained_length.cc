#include "trained_length.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::app {
namespace {

// The largest distance that the model's own sliding windows leave; `tokens` where a layer has none.
std::int64_t largest_span(std::int64_t tokens, const ModelConfig& config) {
  std::int64_t span = 0;
  for (const std::int64_t window : config.windows) {
    span = std::max(span, window > 0 ? std::min(window, tokens) : tokens);
  }
  return config.windows.empty() ? tokens : span;
}

std::string sensible_sinks(const CachePolicy& policy, std::int64_t trained,
                           const ModelConfig& config) {
  if (policy.n_sink >= trained) return streaming_advice(config);
  return fmt::format("the largest sensible window is {0} (--attention-sinks {1} --window {0})",
                     trained - policy.n_sink, policy.n_sink);
}

}  // namespace

std::optional<std::string> beyond_trained_length(const CachePolicy& policy, std::int64_t context,
                                                 const ModelConfig& config) {
  const std::int64_t trained = config.max_positions;
  std::int64_t tokens = context;
  std::string given = fmt::format("--context {}", context);
  std::string advice =
      fmt::format("the largest sensible context is {}; {}", trained, streaming_advice(config));
  if (policy.kind == CachePolicy::Kind::sinks) {
    tokens = policy.n_sink + policy.window;
    given = fmt::format("--attention-sinks {} --window {}", policy.n_sink, policy.window);
    advice = sensible_sinks(policy, trained, config);
  } else if (policy.kind != CachePolicy::Kind::full) {
    tokens = policy.window;
    given = fmt::format("--window {}", policy.window);
    advice = fmt::format("the largest sensible window is {0} (--window {0})", trained);
  }
  if (largest_span(tokens, config) <= trained) return std::nullopt;
  return fmt::format(
      "{} lets the model see {} tokens at once, but it was trained for {}: longer texts turn into "
      "nonsense; {}",
      given, tokens, trained, advice);
}

void note_trained_length(Session& session, const CachePolicy& policy, std::int64_t context) {
  if (auto note = beyond_trained_length(policy, context, session.model->config())) {
    session.note(*note);
  }
}

}  // namespace tessera::app
