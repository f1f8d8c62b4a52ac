// The page of a benchmark: tables, a roofline of the ops, and bars beside other programs.
#include <fmt/format.h>

#include <algorithm>

#include "bench_report.h"
#include "charts.h"
#include "core/size_text.h"
#include "html_page.h"

namespace tessera::app {
namespace {

HtmlTable ops_table(const BenchResults& results) {
  HtmlTable table{.id = "ops",
                  .head = {"", "op", "test", "kernel", "ms", "fastest", "slowest", "achieved",
                           "floor ms", "of floor"},
                  .rows = {}};
  for (const OpResult& op : results.ops) {
    const auto ms = [](double seconds) { return fmt::format("{:.4f}", 1e3 * seconds); };
    const double share = op.floor_seconds / op.time.median;
    table.rows.push_back(
        {{.text = op.suite, .key = "suite"},
         {.text = op.test, .key = "test"},
         {.text = op.kernel, .key = "kernel"},
         {.text = ms(op.time.median), .value = 1e3 * op.time.median, .key = "ms"},
         {.text = ms(op.time.fastest), .value = 1e3 * op.time.fastest, .key = "fastest_ms"},
         {.text = ms(op.time.slowest), .value = 1e3 * op.time.slowest, .key = "slowest_ms"},
         {.text = achieved_text(op, results.ceilings)},
         {.text = ms(op.floor_seconds), .value = 1e3 * op.floor_seconds, .key = "floor_ms"},
         {.text = fmt::format("{:.0f}%", 100 * share), .value = share, .key = "floor_share"}});
  }
  return table;
}

HtmlTable models_table(const BenchResults& results) {
  HtmlTable table{
      .id = "models",
      .head = {"model", "size", "params", "weights", "test", "t/s", "slowest", "fastest"},
      .rows = {}};
  for (const ModelResult& model : results.models) {
    const auto speed = [](double value) { return fmt::format("{:.2f}", value); };
    table.rows.push_back(
        {{.text = model.model, .key = "model"},
         {.text = size_text(model.bytes), .value = model.bytes, .key = "bytes"},
         {.text = count_text(model.parameters), .value = model.parameters, .key = "parameters"},
         {.text = model.weights, .key = "weights"},
         {.text = model.test, .key = "test"},
         {.text = speed(model.tokens_per_second),
          .value = model.tokens_per_second,
          .key = "tokens_per_second"},
         {.text = speed(model.slowest), .value = model.slowest, .key = "slowest"},
         {.text = speed(model.fastest), .value = model.fastest, .key = "fastest"}});
  }
  return table;
}

// Ours, and each peer of the same test, as ratios to ours.
std::vector<ChartBar> peer_bars(const std::string& test, double ours, bool more_is_better,
                                const std::vector<PeerResult>& peers) {
  std::vector<ChartBar> bars;
  for (const PeerResult& peer : peers) {
    const double theirs = more_is_better ? peer.tokens_per_second : peer.ms;
    if (peer.test != test || theirs <= 0) continue;
    const double ratio = more_is_better ? theirs / ours : ours / theirs;
    const char* unit = more_is_better ? "tokens/s" : "ms";
    if (bars.empty()) {
      bars.push_back(
          {.label = "Tessera", .value = 1, .text = fmt::format("{:.4g} {}", ours, unit)});
    }
    bars.push_back({.label = peer.name,
                    .value = ratio,
                    .text = fmt::format("{:.4g} {}, {:.2f}x", theirs, unit, ratio),
                    .accented = false});
  }
  return bars;
}

void add_peers(HtmlPage& page, const BenchResults& results, const std::vector<PeerResult>& peers) {
  if (peers.empty()) return;
  page.heading("Beside other programs");
  const auto add = [&](const std::string& test, double ours, bool more_is_better) {
    const std::vector<ChartBar> bars = peer_bars(test, ours, more_is_better, peers);
    if (!bars.empty()) page.svg(bars_svg(test, "speed, as a ratio to Tessera's", bars));
  };
  for (const ModelResult& model : results.models) add(model.test, model.tokens_per_second, true);
  for (const OpResult& op : results.ops) add(op.test, 1e3 * op.time.median, false);
}

}  // namespace

std::string bench_html(const BenchResults& results, const Comparison* comparison,
                       const std::vector<PeerResult>& peers) {
  HtmlPage page(
      "Benchmark of Tessera",
      fmt::format("{} ({}), {} threads. {}, Tessera {}. Medians; memory reads {:.1f} GB/s.",
                  results.device, results.device_name, results.threads, results.date,
                  results.version, results.ceilings.read_bandwidth * 1e-9));
  if (!results.models.empty()) {
    page.heading("Models, end to end");
    page.table(models_table(results));
  }
  add_peers(page, results, peers);
  if (!results.ops.empty()) {
    page.heading("Single ops");
    std::vector<RooflinePoint> points;
    for (const OpResult& op : results.ops) {
      points.push_back(
          {.label = op.suite + " " + op.test,
           .flops_per_byte = static_cast<double>(op.flops) / static_cast<double>(op.bytes),
           .flops_per_second = static_cast<double>(op.flops) / op.time.median});
    }
    page.svg(
        roofline_svg("Roofline of single ops, by their numbers below", points, results.ceilings));
    page.table(ops_table(results));
  }
  if (comparison != nullptr) {
    page.heading("Against " + comparison->file);
    HtmlTable table{.id = "compare", .head = {"test", "speed", "verdict"}, .rows = {}};
    for (const ComparedTest& test : comparison->tests) {
      table.rows.push_back(
          {{.text = test.test, .key = "test"},
           {.text = fmt::format("{:.2f}x", test.speed), .value = test.speed, .key = "speed"},
           {.text = comparison->is_worse(test) ? "regression" : "ok"}});
    }
    page.table(table);
  }
  return page.end(bench_json(results, comparison));
}

}  // namespace tessera::app
