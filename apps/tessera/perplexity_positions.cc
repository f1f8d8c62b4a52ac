#include "perplexity_positions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "report_file.h"
#include "usage_error.h"

namespace tessera::app {
namespace {

namespace fs = std::filesystem;

bool is_svg(const std::string& path) { return fs::path(path).extension() == ".svg"; }

// 1, 2 or 5 times a power of ten, with about 40 buckets to the text.
std::int64_t fitting_bucket(std::int64_t positions) {
  constexpr std::int64_t kBuckets = 40;
  for (std::int64_t power = 1;; power *= 10) {
    for (const std::int64_t step : {1, 2, 5}) {
      if (step * power * kBuckets >= positions) return step * power;
    }
  }
}

// A field with commas or quotes stands in quotes.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string field = "\"";
  for (const char c : text) field += c == '"' ? std::string("\"\"") : std::string(1, c);
  return field + "\"";
}

PositionPlot make_plot(const PerplexityText& text, const std::vector<ScoredSetting>& scored,
                       std::int64_t bucket) {
  PositionPlot plot;
  std::int64_t last = 0;
  for (const ScoredSetting& setting : scored) {
    if (!setting.result.positions.empty()) last = std::max(last, setting.result.positions.back());
  }
  const std::int64_t width = bucket > 0 ? bucket : fitting_bucket(last + 1);
  for (const ScoredSetting& setting : scored) {
    const PerplexityResult& result = setting.result;
    PositionSeries& series = plot.series.emplace_back();
    series.label = setting.setting.label.empty() ? setting.summary : setting.setting.label;
    series.nll = by_position(result.positions, result.nlls, width);
    if (plot.series.size() == 1) continue;
    const PairedDifferences pairs = paired_differences(result, scored.front().result);
    series.difference = by_position(pairs.positions, pairs.values, width);
  }
  plot.title = "nll by position in " + fs::path(text.name).filename().string();
  plot.subtitle =
      fmt::format("{}, read {}; a point is the mean of {} tokens",
                  fs::path(scored.front().model).filename().string(),
                  scored.front().setting.streams() ? "as one stream" : "in chunks", width);
  return plot;
}

}  // namespace

void check_position_files(const PositionFiles& files, const std::string& text) {
  for (const std::string& path : files.paths) {
    const fs::path file = path;
    if (file.extension() != ".csv" && !is_svg(path)) {
      fail_usage("--by-position {}: the name must end in .csv (a table) or .svg (a plot)", path);
    }
    check_report_place("--by-position", path);
    std::error_code ignored;
    if (text != "-" && fs::equivalent(file, text, ignored)) {
      fail_usage("--by-position {}: this is the text itself; give another name", path);
    }
  }
  if (files.paths.empty() && files.bucket > 0) {
    fail_usage("--bucket {} needs --by-position FILE", files.bucket);
  }
}

std::string to_csv(const PositionPlot& plot) {
  std::string text = "setting,begin,end,tokens,nll,nll_stderr,difference,difference_stderr\n";
  for (const PositionSeries& series : plot.series) {
    auto pair = series.difference.begin();
    for (const PositionBucket& bucket : series.nll) {
      text += fmt::format("{},{},{},{},{:.6f},{:.6f},", csv_field(series.label), bucket.begin,
                          bucket.end, bucket.tokens, bucket.mean, bucket.error);
      while (pair != series.difference.end() && pair->begin < bucket.begin) ++pair;
      const bool paired = pair != series.difference.end() && pair->begin == bucket.begin;
      text += paired ? fmt::format("{:.6f},{:.6f}\n", pair->mean, pair->error) : ",\n";
    }
  }
  return text;
}

void write_positions(const PositionFiles& files, const PerplexityText& text,
                     const std::vector<ScoredSetting>& scored) {
  if (files.paths.empty()) return;
  const PositionPlot plot = make_plot(text, scored, files.bucket);
  for (const std::string& path : files.paths) {
    const std::string content = is_svg(path) ? to_svg(plot) : to_csv(plot);
    write_report_file(path, content);
  }
}

}  // namespace tessera::app
