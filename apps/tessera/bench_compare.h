// Results beside those of an earlier run, or of other programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench_results.h"

namespace tessera::app {

struct ComparedTest {
  std::string test;
  double before = 0, now = 0;  // seconds of an op, tokens per second of a model
  double speed = 0;            // now against before: 1.1 is 10% faster
};

struct Comparison {
  std::string file;
  double max_regression = 0;  // a fraction
  std::vector<ComparedTest> tests;
  std::vector<std::string> missing;  // in the file and not in this run, or the other way round

  bool is_worse(const ComparedTest& test) const { return test.speed < 1 - max_regression; }
  std::int64_t regressions() const;
};

// `earlier`: what --json printed. Throws where it is something else, or shares no test with this
// run.
Comparison compare_bench(const BenchResults& results, const nlohmann::json& earlier,
                         const std::string& file, double max_regression);

// Another program's speed in one of our tests.
struct PeerResult {
  std::string name, test;
  double tokens_per_second = 0;  // of a model
  double ms = 0;                 // or of an op
};
// {"peers": [{"name", "test", "tokens_per_second" or "ms"}, ...]}
std::vector<PeerResult> parse_peers(const std::string& text, const std::string& file);

// What names a result in every run.
std::string test_of(const OpResult& op);
std::string test_of(const ModelResult& model);

}  // namespace tessera::app
