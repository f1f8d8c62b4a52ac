// One line of output: a JSON object, written at once, so that an interrupted run loses nothing.
#pragma once

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "timer.h"

namespace tessera::bench {

using Row = nlohmann::ordered_json;

// Rounds to the digits that are meaningful.
inline double rounded(double value, int decimals) {
  const double unit = std::pow(10.0, decimals);
  return std::round(value * unit) / unit;
}

inline void add_time(Row& row, const Time& time) {
  row["us"] = rounded(time.us, 3);
  row["spread"] = {rounded(time.min, 3), rounded(time.max, 3)};
}

inline void print(const Row& row) {
  std::printf("%s\n", row.dump().c_str());
  std::fflush(stdout);
}

inline void print(const Ceilings& ceilings) {
  print(Row{{"op", "ceilings"},
            {"tb_per_s", rounded(ceilings.bytes_per_s * 1e-12, 3)},
            {"tflop_per_s", rounded(ceilings.flops_per_s * 1e-12, 1)}});
}

}  // namespace tessera::bench
