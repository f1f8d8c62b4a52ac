#include "model/memory_refusal.h"

#include <fmt/format.h>

#include "core/size_text.h"
#include "tessera/quant.h"

namespace tessera::model {
namespace {

constexpr std::int64_t kUsualSinks = 4;  // what StreamingLLM found to be enough

std::string or_elsewhere(const std::string& advice, const std::string& elsewhere) {
  return elsewhere.empty() ? advice : advice + ", or " + elsewhere;
}

std::string advice_for(const WeightsRequest& request) {
  std::string list;
  for (const WeightsRequest::Other& other : request.others) {
    if (other.bytes > request.memory.bytes) continue;
    list += fmt::format("{}{} would need {}", list.empty() ? "" : ", ", other.flags,
                        size_text(other.bytes));
  }
  if (!list.empty()) return list;
  std::string smaller = or_elsewhere("use a smaller model", request.memory.elsewhere);
  if (request.others.empty()) return smaller;
  const WeightsRequest::Other& least = request.others.back();
  return fmt::format("even {} would need {}; {}", least.flags, size_text(least.bytes), smaller);
}

// The largest cache that fits, and the flag that asks for it.
std::string advice_for(const CacheRequest& request) {
  const bool full = request.policy.kind == CachePolicy::Kind::full;
  if (request.largest == 0 && request.policy.kind == CachePolicy::Kind::sinks &&
      request.policy.n_sink > kUsualSinks) {
    return fmt::format(
        "no window at all fits beside {} attention sinks; use fewer "
        "(--attention-sinks {})",
        request.policy.n_sink, kUsualSinks);
  }
  if (request.largest == 0) {
    return or_elsewhere(
        fmt::format("no context at all fits beside the weights; use smaller ones (--weights {})",
                    name(QuantizeOptions().format)),
        request.memory.elsewhere);
  }
  if (!full) {
    return or_elsewhere(
        fmt::format("the largest window that fits is {0} tokens (--window {0})", request.largest),
        request.memory.elsewhere);
  }
  return fmt::format(
      "the largest context that fits is {0} tokens (--context {0}); --attention-sinks 4 --window N "
      "takes a stream of any length in the memory of N tokens",
      request.largest);
}

}  // namespace

std::string refusal(const WeightsRequest& request) {
  const std::string loading =
      request.loading == 0
          ? ""
          : fmt::format(" and {} more while they are loaded", size_text(request.loading));
  return fmt::format("{}, and the weights need {}{}: {}", request.memory.text,
                     size_text(request.weights), loading, advice_for(request));
}

std::string refusal(const CacheRequest& request) {
  const std::string cache = request.policy.kind == CachePolicy::Kind::full
                                ? fmt::format("{} tokens", request.tokens)
                                : to_string(request.policy);
  const std::string workspace =
      request.workspace == 0 ? ""
                             : fmt::format(" and the workspace {}", size_text(request.workspace));
  return fmt::format("{}, and beside the weights of {} the KV cache of {} needs {}{}: {}",
                     request.memory.text, size_text(request.weights), cache, size_text(request.kv),
                     workspace, advice_for(request));
}

std::int64_t largest_that_fits(std::int64_t wanted, std::int64_t available,
                               const std::function<std::int64_t(std::int64_t)>& need) {
  std::int64_t fits = 0, too_many = wanted + 1;
  while (too_many - fits > 1) {
    const std::int64_t middle = fits + (too_many - fits) / 2;
    (need(middle) <= available ? fits : too_many) = middle;
  }
  return fits;
}

}  // namespace tessera::model
