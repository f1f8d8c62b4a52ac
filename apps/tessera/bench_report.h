// The forms in which `tessera bench` prints its results.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench_compare.h"
#include "bench_results.h"

namespace tessera::app {

// {"about", "ceilings", "ops": [...], "models": [...]}; with a comparison also "compare".
nlohmann::json bench_json(const BenchResults& results, const Comparison* comparison);
// Tables for a terminal.
std::string bench_text(const BenchResults& results, const Comparison* comparison);
// The same tables in Markdown.
std::string bench_markdown(const BenchResults& results, const Comparison* comparison);
// kind,test,kernel,...: one line for each result.
std::string bench_csv(const BenchResults& results);
// A page with plots. `peers` may be null: speeds of other programs, for bars beside ours.
std::string bench_html(const BenchResults& results, const Comparison* comparison,
                       const std::vector<PeerResult>& peers);

// "4.2 TFLOP/s", "85 GB/s": what bounds the op.
std::string achieved_text(const OpResult& op, const profile::Ceilings& ceilings);
// "12.7 M"
std::string count_text(std::int64_t count);

}  // namespace tessera::app
