// Tables, JSON and CSV of a benchmark.
#include "bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "core/size_text.h"
#include "report_about.h"
#include "tessera/version.h"

namespace tessera::app {
namespace {

using Json = nlohmann::json;
using Rows = std::vector<std::vector<std::string>>;

Rows model_rows(const BenchResults& results) {
  Rows rows{{"model", "size", "params", "device", "threads", "weights", "test", "t/s"}};
  for (const ModelResult& model : results.models) {
    rows.push_back({model.model, size_text(model.bytes), count_text(model.parameters),
                    results.device, fmt::format("{}", results.threads), model.weights, model.test,
                    fmt::format("{:.2f} ± {:.2f}", model.tokens_per_second,
                                (model.fastest - model.slowest) / 2)});
  }
  return rows;
}

Rows op_rows(const BenchResults& results) {
  Rows rows{{"op", "test", "kernel", "ms", "spread", "achieved", "floor ms", "of floor"}};
  for (const OpResult& op : results.ops) {
    rows.push_back({op.suite, op.test, op.kernel, fmt::format("{:.4f}", 1e3 * op.time.median),
                    fmt::format("{:.4f} - {:.4f}", 1e3 * op.time.fastest, 1e3 * op.time.slowest),
                    achieved_text(op, results.ceilings),
                    fmt::format("{:.4f}", 1e3 * op.floor_seconds),
                    fmt::format("{:.0f}%", 100 * op.floor_seconds / op.time.median)});
  }
  return rows;
}

Rows compare_rows(const Comparison& comparison) {
  Rows rows{{"test", "speed", "verdict"}};
  for (const ComparedTest& test : comparison.tests) {
    rows.push_back({test.test, fmt::format("{:.2f}x", test.speed),
                    comparison.is_worse(test) ? "REGRESSION" : "ok"});
  }
  return rows;
}

// Characters as a terminal counts them: ± is one.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string aligned(const Rows& rows, bool markdown) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], width_of(row[i]));
    }
  }
  std::string text;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::string line = markdown ? "|" : "";
    for (std::size_t i = 0; i < rows[r].size(); ++i) {
      const std::string pad(widths[i] - width_of(rows[r][i]), ' ');
      line += markdown ? fmt::format(" {}{} |", rows[r][i], pad)
                       : fmt::format("{}{}  ", rows[r][i], pad);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
    if (markdown && r == 0) {
      text += "|";
      for (const std::size_t width : widths) text += std::string(width + 2, '-') + "|";
      text += "\n";
    }
  }
  return text;
}

std::string head_text(const BenchResults& results) {
  return fmt::format(
      "Tessera {}, {}, {} ({}), {} threads{}\nceilings: memory reads {:.1f} GB/s, f32 {:.0f} "
      "GFLOP/s, fastest products {:.0f} GFLOP/s\n",
      results.version, results.date, results.device, results.device_name, results.threads,
      results.quick ? ", quick" : "", results.ceilings.read_bandwidth * 1e-9,
      results.ceilings.f32_rate * 1e-9, results.ceilings.matrix_rate * 1e-9);
}

std::string tables(const BenchResults& results, const Comparison* comparison, bool markdown) {
  std::string text = head_text(results);
  if (!results.ops.empty()) text.append("\n").append(aligned(op_rows(results), markdown));
  if (!results.models.empty()) text.append("\n").append(aligned(model_rows(results), markdown));
  if (comparison != nullptr) {
    text += fmt::format("\nagainst {}\n{}{}", comparison->file, markdown ? "\n" : "",
                        aligned(compare_rows(*comparison), markdown));
    for (const std::string& test : comparison->missing) {
      text += fmt::format("only in one of the two runs: {}\n", test);
    }
    text += fmt::format("{} of {} tests are more than {:.0f}% slower\n", comparison->regressions(),
                        comparison->tests.size(), 100 * comparison->max_regression);
  }
  return text;
}

// A field of CSV, in quotes: names have commas.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) result += c == '"' ? "\"\"" : std::string(1, c);
  return result + "\"";
}

Json compare_json(const Comparison& comparison) {
  Json tests = Json::array();
  for (const ComparedTest& test : comparison.tests) {
    tests.push_back({{"test", test.test},
                     {"before", test.before},
                     {"now", test.now},
                     {"speed", test.speed},
                     {"ok", !comparison.is_worse(test)}});
  }
  return {{"file", comparison.file},
          {"max_regression", comparison.max_regression},
          {"regressions", comparison.regressions()},
          {"only_in_one", comparison.missing},
          {"tests", tests}};
}

}  // namespace

std::string achieved_text(const OpResult& op, const profile::Ceilings& ceilings) {
  const double seconds = op.time.median;
  const double reading = static_cast<double>(op.bytes) / std::max(ceilings.read_bandwidth, 1.0);
  const double computing =
      static_cast<double>(op.flops) / std::max(ceilings.rate_for(op.kernel), 1.0);
  if (computing > reading) {
    return fmt::format("{:.3f} TFLOP/s", static_cast<double>(op.flops) / seconds * 1e-12);
  }
  return fmt::format("{:.1f} GB/s", static_cast<double>(op.bytes) / seconds * 1e-9);
}

std::string count_text(std::int64_t count) {
  const auto number = static_cast<double>(count);
  if (count >= 1'000'000'000) return fmt::format("{:.2f} B", number * 1e-9);
  return fmt::format("{:.2f} M", number * 1e-6);
}

Json bench_json(const BenchResults& results, const Comparison* comparison) {
  Json ops = Json::array(), models = Json::array();
  for (const OpResult& op : results.ops) {
    ops.push_back({{"suite", op.suite},
                   {"test", op.test},
                   {"kernel", op.kernel},
                   {"ms", 1e3 * op.time.median},
                   {"fastest_ms", 1e3 * op.time.fastest},
                   {"slowest_ms", 1e3 * op.time.slowest},
                   {"bytes", op.bytes},
                   {"flops", op.flops},
                   {"floor_ms", 1e3 * op.floor_seconds},
                   {"floor_share", op.floor_seconds / op.time.median}});
  }
  for (const ModelResult& model : results.models) {
    models.push_back({{"model", model.model},
                      {"weights", model.weights},
                      {"test", model.test},
                      {"bytes", model.bytes},
                      {"parameters", model.parameters},
                      {"tokens_per_second", model.tokens_per_second},
                      {"slowest", model.slowest},
                      {"fastest", model.fastest}});
  }
  Json json{{"about",
             {{"device", results.device},
              {"device_name", results.device_name},
              {"threads", results.threads},
              {"quick", results.quick},
              {"date", results.date},
              {"version", version()},
              {"commit", commit()}}},
            {"ceilings",
             {{"read_bandwidth", results.ceilings.read_bandwidth},
              {"f32_rate", results.ceilings.f32_rate},
              {"matrix_rate", results.ceilings.matrix_rate}}},
            {"ops", ops},
            {"models", models}};
  if (comparison != nullptr) json["compare"] = compare_json(*comparison);
  return json;
}

std::string bench_text(const BenchResults& results, const Comparison* comparison) {
  return tables(results, comparison, false);
}
std::string bench_markdown(const BenchResults& results, const Comparison* comparison) {
  return tables(results, comparison, true);
}

std::string bench_csv(const BenchResults& results) {
  std::string text =
      "kind,test,kernel,ms,fastest_ms,slowest_ms,bytes,flops,floor_ms,tokens_per_second\n";
  for (const OpResult& op : results.ops) {
    text += fmt::format("{},{},{},{},{},{},{},{},{},\n", op.suite, quoted(op.test), op.kernel,
                        1e3 * op.time.median, 1e3 * op.time.fastest, 1e3 * op.time.slowest,
                        op.bytes, op.flops, 1e3 * op.floor_seconds);
  }
  for (const ModelResult& model : results.models) {
    text += fmt::format("decode,{},,,,,,,,{}\n", quoted(test_of(model)), model.tokens_per_second);
  }
  return text;
}

}  // namespace tessera::app
