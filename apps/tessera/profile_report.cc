// The table and the JSON of a profile.
#include "profile_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "report_about.h"
#include "tessera/version.h"

namespace tessera::app {
namespace {

using profile::Breakdown;
using profile::BreakdownRow;
using profile::Ceilings;
using Json = nlohmann::json;

Json rows_json(const Breakdown& breakdown) {
  Json rows = Json::array();
  for (const BreakdownRow& row : breakdown.rows) {
    rows.push_back({{"op", row.op},
                    {"kernel", row.kernel},
                    {"calls", row.calls},
                    {"ms", row.ms},
                    {"share", row.share},
                    {"bytes", row.bytes},
                    {"flops", row.flops},
                    {"floor_ms", row.floor_ms},
                    {"max_gain", row.max_gain},
                    {"advice", row.advice}});
  }
  return {{"wall_ms", breakdown.wall_ms}, {"rows", rows}};
}

Json ceilings_json(const Ceilings& ceilings) {
  return {{"read_bandwidth", ceilings.read_bandwidth},
          {"f32_rate", ceilings.f32_rate},
          {"matrix_rate", ceilings.matrix_rate}};
}

Json layers_json(const ProfilePhase& phase) {
  Json rows = Json::array();
  for (const LayerTime& layer : phase.layers) {
    Json row{{"layer", layer.layer}};
    for (std::size_t i = 0; i < phase.layer_ops.size(); ++i) row[phase.layer_ops[i]] = layer.ms[i];
    rows.push_back(std::move(row));
  }
  return rows;
}

Json fusion_json(const profile::FusionGain& gain) {
  return {{"apart_ms", gain.apart_ms},
          {"fused_ms", gain.fused_ms},
          {"add_ms", gain.add_ms},
          {"predicted_gain", gain.predicted},
          {"measured_gain", gain.measured}};
}

std::string fusion_text(const profile::FusionGains& gains) {
  std::string text =
      "\nfusion: bias and residual in the epilogue of linear, against adds of their own\n";
  const auto add = [&](const char* phase, const profile::FusionGain& gain) {
    text += fmt::format(
        "  {:<8} apart {:.3f} ms (adds {:.3f}), fused {:.3f} ms; gain predicted {:.2f}%, measured "
        "{:.2f}%: ratio {:.2f}\n",
        phase, gain.apart_ms, gain.add_ms, gain.fused_ms, 100 * gain.predicted, 100 * gain.measured,
        gain.agreement());
  };
  add("prefill", gains.prefill);
  add("decode", gains.decode);
  return text;
}

// "12.3%", and nothing for nothing.
std::string percent(double fraction) {
  return fraction > 0 ? fmt::format("{:.1f}%", 100 * fraction) : "-";
}

std::string phase_text(const ProfilePhase& phase) {
  const Breakdown& breakdown = phase.breakdown;
  std::size_t op = 2, kernel = 6;
  for (const BreakdownRow& row : breakdown.rows) {
    op = std::max(op, row.op.size());
    kernel = std::max(kernel, row.kernel.size());
  }
  std::string text = fmt::format(
      "\n{}: {:.3f} ms for {} ({:.1f} tokens/s; with tracing off {:.3f} ms); reads {:.1f} GB/s\n",
      phase.name, breakdown.wall_ms, phase.unit,
      1e3 * static_cast<double>(phase.tokens) / breakdown.wall_ms, phase.untraced_ms,
      phase.ceilings.read_bandwidth * 1e-9);
  text += fmt::format(
      "  {:<{}}  {:<{}}  {:>6}  {:>9}  {:>6}  {:>8}  {:>9}  {:>9}  {:>8}  {:>9}  {:>7}\n", "op", op,
      "kernel", kernel, "calls", "ms", "share", "GB/s", "GFLOP/s", "floor ms", "of floor",
      "max gain", "if free");
  for (const BreakdownRow& row : breakdown.rows) {
    const double rate = row.ms > 0 ? 1e-6 / row.ms : 0;  // to giga per second
    const auto per_second = [&](std::int64_t amount) {
      return amount > 0 ? fmt::format("{:.1f}", static_cast<double>(amount) * rate) : "-";
    };
    text += fmt::format(
        "  {:<{}}  {:<{}}  {:>6}  {:>9.4f}  {:>6}  {:>8}  {:>9}  {:>9.4f}  {:>8}  {:>9}  {:>7}\n",
        row.op, op, row.kernel, kernel, row.calls, row.ms, percent(row.share),
        per_second(row.bytes), per_second(row.flops), row.floor_ms,
        percent(row.ms > 0 ? row.floor_ms / row.ms : 0), percent(row.max_gain),
        percent(row.free_gain));
  }
  text += "  advise\n";
  for (const BreakdownRow& row : breakdown.rows) {
    text += fmt::format("    {:<{}}  {}\n", row.op, op, row.advice);
  }
  return text;
}

}  // namespace

Json profile_json(const ProfileReport& report) {
  Json json{{"prefill", rows_json(report.prefill.breakdown)},
            {"decode", rows_json(report.decode.breakdown)},
            {"about",
             {{"model", report.model},
              {"architecture", report.architecture},
              {"device", report.device},
              {"device_name", report.device_name},
              {"threads", report.threads},
              {"dtype", report.dtype},
              {"weights", report.weights},
              {"prompt_len", report.prompt_len},
              {"gen_len", report.gen_len},
              {"date", report.date},
              {"version", version()},
              {"commit", commit()},
              {"untraced_ms",
               {{"prefill", report.prefill.untraced_ms}, {"decode", report.decode.untraced_ms}}},
              {"notes", report.notes}}},
            {"ceilings",
             {{"memory_bandwidth", report.memory_bandwidth},
              {"prefill", ceilings_json(report.prefill.ceilings)},
              {"decode", ceilings_json(report.decode.ceilings)}}},
            {"layers",
             {{"prefill", layers_json(report.prefill)}, {"decode", layers_json(report.decode)}}}};
  if (report.fusion) {
    json["fusion"] = {{"prefill", fusion_json(report.fusion->prefill)},
                      {"decode", fusion_json(report.fusion->decode)}};
  }
  return json;
}

std::string profile_text(const ProfileReport& report) {
  std::string text = fmt::format(
      "{} ({}), weights {}, {}, on {} ({}), {} threads\n"
      "ceilings: memory reads {:.1f} GB/s, f32 {:.0f} GFLOP/s, fastest products {:.0f} GFLOP/s\n",
      report.model, report.architecture, report.weights, report.dtype, report.device,
      report.device_name, report.threads, report.memory_bandwidth * 1e-9,
      report.decode.ceilings.f32_rate * 1e-9, report.decode.ceilings.matrix_rate * 1e-9);
  text += phase_text(report.prefill);
  text += phase_text(report.decode);
  if (report.fusion) text += fusion_text(*report.fusion);
  return text;
}

}  // namespace tessera::app
