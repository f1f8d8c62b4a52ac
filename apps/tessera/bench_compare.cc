#include "bench_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/fail.h"

namespace tessera::app {
namespace {

using Json = nlohmann::json;

// Speeds of the earlier run by test: seconds of ops, tokens per second of models.
std::map<std::string, double> earlier_values(const Json& earlier, const std::string& file) {
  std::map<std::string, double> values;
  try {
    for (const Json& op : earlier.at("ops")) {
      values[op.at("suite").get<std::string>() + ": " + op.at("test").get<std::string>()] =
          op.at("ms").get<double>() / 1e3;
    }
    for (const Json& model : earlier.at("models")) {
      values[fmt::format("{}, {}: {}", model.at("model").get<std::string>(),
                         model.at("weights").get<std::string>(),
                         model.at("test").get<std::string>())] =
          model.at("tokens_per_second").get<double>();
    }
  } catch (const Json::exception&) {
    fail(ErrorCode::file, "{} is not what tessera bench --json prints; give such a file", file);
  }
  return values;
}

}  // namespace

std::string test_of(const OpResult& op) { return op.suite + ": " + op.test; }
std::string test_of(const ModelResult& model) {
  return fmt::format("{}, {}: {}", model.model, model.weights, model.test);
}

std::int64_t Comparison::regressions() const {
  return std::count_if(tests.begin(), tests.end(),
                       [&](const ComparedTest& test) { return is_worse(test); });
}

Comparison compare_bench(const BenchResults& results, const Json& earlier, const std::string& file,
                         double max_regression) {
  Comparison comparison{.file = file, .max_regression = max_regression, .tests = {}, .missing = {}};
  std::map<std::string, double> before = earlier_values(earlier, file);
  const auto add = [&](const std::string& test, double now, bool more_is_better) {
    const auto found = before.find(test);
    if (found == before.end() || found->second <= 0 || now <= 0) {
      comparison.missing.push_back(test);
      return;
    }
    const double then = found->second;
    comparison.tests.push_back({.test = test,
                                .before = then,
                                .now = now,
                                .speed = more_is_better ? now / then : then / now});
    before.erase(found);
  };
  for (const OpResult& op : results.ops) add(test_of(op), op.time.median, false);
  for (const ModelResult& model : results.models) {
    add(test_of(model), model.tokens_per_second, true);
  }
  for (const auto& [test, value] : before) comparison.missing.push_back(test);
  if (comparison.tests.empty()) {
    fail(ErrorCode::file, "{} has no test of this run; run the same suites with the same model",
         file);
  }
  return comparison;
}

std::vector<PeerResult> parse_peers(const std::string& text, const std::string& file) {
  std::vector<PeerResult> peers;
  try {
    const Json parsed = Json::parse(text);
    for (const Json& peer : parsed.at("peers")) {
      PeerResult result{.name = peer.at("name").get<std::string>(),
                        .test = peer.at("test").get<std::string>()};
      result.tokens_per_second = peer.value("tokens_per_second", 0.0);
      result.ms = peer.value("ms", 0.0);
      if (result.tokens_per_second <= 0 && result.ms <= 0) {
        fail(ErrorCode::file, "{}: {} in {} has neither tokens_per_second nor ms above 0", file,
             result.name, result.test);
      }
      peers.push_back(std::move(result));
    }
  } catch (const Json::exception& error) {
    fail(ErrorCode::file,
         "{} is not a file of peers: it must be like {{\"peers\": [{{\"name\": \"llama.cpp\", "
         "\"test\": \"tg128\", \"tokens_per_second\": 100}}]}} ({})",
         file, error.what());
  }
  return peers;
}

}  // namespace tessera::app
