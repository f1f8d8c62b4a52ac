#include "run_summary.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <map>

#include "core/size_text.h"
#include "tessera/version.h"

namespace tessera::app {
namespace {

std::string device_name(Device device) {
  for (const DeviceInfo& info : devices()) {
    if (info.device == device) return info.device.is_cpu() ? info.capability : info.name;
  }
  return "unknown";
}

std::string cache_text(const KvCache& cache) {
  const KvCacheOptions& o = cache.options();
  if (o.policy.kind == CachePolicy::Kind::full) {
    return fmt::format("full, {} tokens", o.max_tokens);
  }
  return to_string(o.policy);
}

}  // namespace

std::int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;  // Linux counts in KiB
}

std::string weights_name(const Model& model) {
  std::map<Format, std::int64_t> elements;
  for (const LayerInfo& layer : model.linear_layers()) {
    elements[layer.weight.format] += layer.weight.out_features * layer.weight.in_features;
  }
  Format most = Format::dense;
  for (const auto& [format, count] : elements) {
    if (count > elements[most]) most = format;
  }
  return std::string(name(most));
}

std::string activations_name(const Context& ctx) {
  return ctx.activations() == Activations::exact ? "exact" : "int8";
}

std::string what_ran_where(const Session& session) {
  const Context& ctx = *session.ctx;
  const std::string weights = weights_name(*session.model);
  std::string text = fmt::format("{} weights", weights);
  if (weights != "dense" && ctx.device().is_cpu()) {
    text += fmt::format(", {} activations", activations_name(ctx));
  }
  text += fmt::format(", {}, {} ({}", name(session.model->dtype()), to_string(ctx.device()),
                      device_name(ctx.device()));
  if (ctx.device().is_cpu()) {
    text += fmt::format(", {} thread{}", ctx.threads(), ctx.threads() == 1 ? "" : "s");
  }
  return text + ")";
}

Timing timing_of(const GenerateResult& result) {
  Timing timing;
  if (result.ids.empty()) return timing;
  timing.ttft_ms = 1e3 * result.first_seconds;
  if (result.ids.size() > 1) {
    timing.tpot_ms = 1e3 * result.decode_seconds / static_cast<double>(result.ids.size() - 1);
  }
  const double per_token = timing.tpot_ms > 0 ? timing.tpot_ms : timing.ttft_ms;
  timing.tokens_per_s = per_token > 0 ? 1e3 / per_token : 0;
  return timing;
}

std::string summary_line(const Session& session, const KvCache& cache,
                         const GenerateResult& result) {
  const Timing timing = timing_of(result);
  return fmt::format(
      "{} tokens after a prompt of {} ({}), first after {:.1f} ms, {:.2f} ms per token, {:.1f} "
      "tokens/s; memory: weights {}, KV {} ({}), peak RSS {}; {}",
      result.ids.size(), result.prompt_tokens, name(result.reason), timing.ttft_ms, timing.tpot_ms,
      timing.tokens_per_s, size_text(session.model->weight_bytes()), size_text(cache.bytes()),
      cache_text(cache), size_text(peak_rss_bytes()), what_ran_where(session));
}

nlohmann::json session_json(const Session& session, const KvCache& cache) {
  const Context& ctx = *session.ctx;
  return {{"model", session.directory.string()},
          {"device", to_string(ctx.device())},
          {"device_name", device_name(ctx.device())},
          {"weights", weights_name(*session.model)},
          {"activations", activations_name(ctx)},
          {"dtype", name(session.model->dtype())},
          {"cache", to_string(cache.options().policy)},
          {"threads", ctx.threads()},
          {"load_ms", 1e3 * session.load_seconds},
          {"memory_bytes",
           {{"weights", session.model->weight_bytes()},
            {"kv_cache", cache.bytes()},
            {"workspace", ctx.workspace_peak_bytes()},
            {"peak_rss", peak_rss_bytes()}}},
          {"version", version()}};
}

}  // namespace tessera::app
