#include "run_summary.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <map>
#include <vector>

#include "core/size_text.h"
#include "tessera/version.h"

namespace tessera::app {
namespace {

std::string processor_name(Device device) {
  for (const DeviceInfo& info : devices()) {
    if (info.device == device) return info.device.is_cpu() ? info.capability : info.name;
  }
  return "unknown";
}

// "cpu (AVX2, 2 threads)", "cuda:0 (NVIDIA H200)"
std::string device_text(const Context& ctx) {
  std::string text = processor_name(ctx.device());
  if (ctx.device().is_cpu()) {
    text += fmt::format(", {} thread{}", ctx.threads(), ctx.threads() == 1 ? "" : "s");
  }
  return fmt::format("{} ({})", to_string(ctx.device()), text);
}

// The formats of all linear layers except the last, the head; the one with most weights first.
std::vector<Format> formats_by_size(const Model& model) {
  const std::vector<LayerInfo>& layers = model.linear_layers();
  std::map<Format, std::int64_t> elements;
  for (std::size_t i = 0; i + 1 < layers.size(); ++i) {
    const Weight& weight = layers[i].weight;
    elements[weight.format] += weight.out_features * weight.in_features;
  }
  std::vector<Format> formats;
  formats.reserve(elements.size());
  for (const auto& [format, count] : elements) formats.push_back(format);
  std::stable_sort(formats.begin(), formats.end(),
                   [&](Format a, Format b) { return elements[a] > elements[b]; });
  return formats;
}

}  // namespace

std::int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;  // Linux counts in KiB
}

std::string weights_name(const Model& model) {
  return std::string(name(formats_by_size(model).front()));
}

std::string weights_text(const Model& model) {
  const std::vector<Format> formats = formats_by_size(model);
  std::vector<std::string> names;
  names.reserve(formats.size());
  for (const Format format : formats) names.emplace_back(name(format));
  std::string text = fmt::format("{}", fmt::join(names, " and "));
  const Format head = model.linear_layers().back().weight.format;
  if (std::find(formats.begin(), formats.end(), head) == formats.end()) {
    text += fmt::format(", {} head", name(head));
  }
  return text;
}

std::string activations_name(const Context& ctx) {
  return ctx.activations() == Activations::exact ? "exact" : "int8";
}

std::string what_ran_where(const Session& session) {
  const Context& ctx = *session.ctx;
  std::string text = fmt::format("{} weights", weights_text(*session.model));
  if (weights_name(*session.model) != "dense" && ctx.device().is_cpu()) {
    text += fmt::format(", {} activations", activations_name(ctx));
  }
  return fmt::format("{}, {}, {}", text, name(session.model->dtype()), device_text(ctx));
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

std::string summary_text(const Session& session, const KvCache& cache,
                         const GenerateResult& result) {
  const Timing timing = timing_of(result);
  return fmt::format(
      "{} tokens in, {} out ({}): first {:.1f} ms, then {:.2f} ms each, {:.1f}/s\n{}",
      result.prompt_tokens, result.ids.size(), name(result.reason), timing.ttft_ms, timing.tpot_ms,
      timing.tokens_per_s, memory_text(session, facts_of(cache)));
}

CacheFacts facts_of(const KvCache& cache) {
  return {cache.options().policy, cache.options().dtype, cache.bytes()};
}

std::string memory_text(const Session& session, const CacheFacts& cache) {
  return fmt::format("weights {} ({}), KV {} ({}), peak {}; {}",
                     size_text(session.model->weight_bytes()), weights_text(*session.model),
                     size_text(cache.bytes), cache_dtype_name(cache.dtype),
                     size_text(peak_rss_bytes()), device_text(*session.ctx));
}

nlohmann::json session_json(const Session& session, const KvCache& cache) {
  return session_json(session, facts_of(cache));
}

nlohmann::json session_json(const Session& session, const CacheFacts& cache) {
  const Context& ctx = *session.ctx;
  return {{"model", session.directory.string()},
          {"device", to_string(ctx.device())},
          {"device_name", processor_name(ctx.device())},
          {"weights", weights_name(*session.model)},
          {"weights_text", weights_text(*session.model)},
          {"activations", activations_name(ctx)},
          {"dtype", name(session.model->dtype())},
          {"cache", to_string(cache.policy)},
          {"cache_dtype", cache_dtype_name(cache.dtype)},
          {"threads", ctx.threads()},
          {"load_ms", 1e3 * session.load_seconds},
          {"memory_bytes",
           {{"weights", session.model->weight_bytes()},
            {"kv_cache", cache.bytes},
            {"workspace", ctx.workspace_peak_bytes()},
            {"peak_rss", peak_rss_bytes()}}},
          {"notes", session.notes},
          {"version", version()}};
}

}  // namespace tessera::app
