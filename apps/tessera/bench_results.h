// What `tessera bench` measured.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profile/ceilings.h"
#include "profile/timing.h"

namespace tessera::app {

// One op on one shape.
struct OpResult {
  std::string suite;   // "linear"
  std::string test;    // "llama-8b up, nvfp4, 1 token": the same in every run
  std::string kernel;  // as in the trace
  profile::Timing time;
  std::int64_t bytes = 0, flops = 0;
  double floor_seconds = 0;
};

// A model end to end, in the columns of llama-bench.
struct ModelResult {
  std::string model, weights, test;  // "pp512", "tg128"
  std::int64_t bytes = 0, parameters = 0;
  double tokens_per_second = 0, slowest = 0, fastest = 0;  // the median, and the spread
};

struct BenchResults {
  std::string device, device_name, date, version;
  int threads = 0;
  bool quick = false;
  profile::Ceilings ceilings;
  std::vector<OpResult> ops;
  std::vector<ModelResult> models;
};

}  // namespace tessera::app
