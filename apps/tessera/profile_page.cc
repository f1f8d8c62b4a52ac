// The page of a profile: plots, the table of each phase, advice, and the time of each layer.
#include <fmt/format.h>

#include "charts.h"
#include "html_page.h"
#include "profile_report.h"

namespace tessera::app {
namespace {

using profile::BreakdownRow;

HtmlCell words(const std::string& key, const std::string& text) {
  return {.text = text, .value = nullptr, .key = key};
}
template <typename Number>
HtmlCell figure(const std::string& key, Number value, const std::string& text) {
  return {.text = text, .value = value, .key = key};
}
std::string percent_text(double fraction) { return fmt::format("{:.1f}%", 100 * fraction); }

HtmlTable rows_table(const ProfilePhase& phase) {
  HtmlTable table{.id = phase.name,
                  .head = {"op", "kernel", "calls", "ms", "share", "bytes", "flops", "floor ms",
                           "gain at its floor", "advice"},
                  .rows = {}};
  for (const BreakdownRow& row : phase.breakdown.rows) {
    table.rows.push_back({words("op", row.op), words("kernel", row.kernel),
                          figure("calls", row.calls, fmt::format("{}", row.calls)),
                          figure("ms", row.ms, fmt::format("{:.4f}", row.ms)),
                          figure("share", row.share, percent_text(row.share)),
                          figure("bytes", row.bytes, fmt::format("{}", row.bytes)),
                          figure("flops", row.flops, fmt::format("{}", row.flops)),
                          figure("floor_ms", row.floor_ms, fmt::format("{:.4f}", row.floor_ms)),
                          figure("max_gain", row.max_gain, percent_text(row.max_gain)),
                          words("advice", row.advice)});
  }
  return table;
}

HtmlTable layers_table(const ProfilePhase& phase) {
  HtmlTable table{.id = phase.name + "-layers", .head = {"layer"}, .rows = {}};
  for (const std::string& op : phase.layer_ops) table.head.push_back(op + ", ms");
  for (const LayerTime& layer : phase.layers) {
    std::vector<HtmlCell> cells{words("layer", layer.layer)};
    for (std::size_t i = 0; i < layer.ms.size(); ++i) {
      cells.push_back(figure(phase.layer_ops[i], layer.ms[i], fmt::format("{:.4f}", layer.ms[i])));
    }
    table.rows.push_back(std::move(cells));
  }
  return table;
}

void add_phase(HtmlPage& page, const ProfilePhase& phase) {
  page.heading(
      fmt::format("{}: {:.3f} ms for {}", phase.name, phase.breakdown.wall_ms, phase.unit));
  page.svg(profile_shares(phase));
  page.table(rows_table(phase));
  page.svg(profile_roofline(phase));
  page.heading(phase.name + ", layer by layer");
  page.table(layers_table(phase));
}

}  // namespace

std::string profile_roofline(const ProfilePhase& phase) {
  std::vector<RooflinePoint> points;
  for (const BreakdownRow& row : phase.breakdown.rows) {
    if (row.flops == 0 || row.bytes == 0 || row.ms <= 0) continue;
    points.push_back(
        {.label = row.op + ", " + row.kernel,
         .flops_per_byte = static_cast<double>(row.flops) / static_cast<double>(row.bytes),
         .flops_per_second = static_cast<double>(row.flops) / (1e-3 * row.ms)});
  }
  return roofline_svg("Roofline of " + phase.name, points, phase.ceilings);
}

std::string profile_shares(const ProfilePhase& phase) {
  std::vector<ChartBar> bars;
  for (const BreakdownRow& row : phase.breakdown.rows) {
    if (row.ms <= 0) continue;
    bars.push_back({.label = row.kernel == "none" ? row.op : row.op + ", " + row.kernel,
                    .value = row.share,
                    .text = fmt::format("{} ({:.4f} ms)", percent_text(row.share), row.ms),
                    .accented = row.worth_it});
  }
  return bars_svg(fmt::format("Where the time of {} goes", phase.name),
                  fmt::format("{:.3f} ms for {}; coloured: worth optimising",
                              phase.breakdown.wall_ms, phase.unit),
                  bars);
}

std::string profile_html(const ProfileReport& report) {
  HtmlPage page(fmt::format("Profile of {}", report.model),
                fmt::format("{} on {} ({}), {} threads, weights {}, {}. {}, Tessera {}.",
                            report.architecture, report.device, report.device_name, report.threads,
                            report.weights, report.dtype, report.date, report.version));
  page.paragraph(fmt::format(
      "Memory reads {:.1f} GB/s. A floor is bytes over bandwidth or flops over rate, whichever "
      "takes longer. Worth optimising: at least 10% of the time, or 15% to gain.",
      report.memory_bandwidth * 1e-9));
  add_phase(page, report.decode);
  add_phase(page, report.prefill);
  return page.end(profile_json(report));
}

}  // namespace tessera::app
