// What /metrics tells, in the text format of Prometheus. Used on the network's thread only.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/engine.h"

namespace tessera::server {

// Counts of values up to each bound; the last count is of all.
class Histogram {
 public:
  // Seconds, from a fast token on a GPU to a long answer.
  static constexpr std::array kBounds = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                         0.25,   0.5,   1.0,    2.5,   5.0,  10.0,  30.0, 60.0};

  void observe(double seconds);
  void write(std::string& out, std::string_view name, std::string_view help) const;

 private:
  std::array<std::int64_t, kBounds.size() + 1> counts_{};
  double sum_ = 0;
};

class Metrics {
 public:
  std::int64_t connections = 0;  // now
  std::int64_t refused_connections = 0;

  // `route`: as in the table of routes, so that clients cannot invent labels.
  void count_request(std::string_view route, int status, double seconds);
  // A choice that has ended.
  void count_answer(const Event& event);

  // The engine's numbers are null while the model loads.
  std::string text(const EngineStats* engine, std::int64_t page_bytes) const;

 private:
  std::map<std::pair<std::string, int>, std::int64_t, std::less<>> requests_;
  Histogram request_seconds_, first_token_seconds_, token_seconds_;
};

}  // namespace tessera::server
