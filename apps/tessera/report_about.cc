#include "report_about.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <utility>
#include <vector>

#include "tessera/version.h"
#include "tessera/weight.h"

namespace tessera::app {

std::string today() { return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr))); }

std::string version_text() { return fmt::format("{}, commit {}", version(), commit()); }

std::string device_name(Device device) {
  for (const DeviceInfo& info : devices()) {
    if (info.device == device) return info.name;
  }
  return to_string(device);
}

std::string weight_formats_of(const Model& model) {
  std::map<std::string, std::int64_t> bytes;
  for (const LayerInfo& layer : model.linear_layers()) {
    const Weight& weight = layer.weight;
    const bool dense = weight.format == Format::dense;
    bytes[std::string(dense ? name(weight.data.dtype) : name(weight.format))] += weight.bytes();
  }
  std::vector<std::pair<std::string, std::int64_t>> sorted(bytes.begin(), bytes.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [format, count] : sorted) text += (text.empty() ? "" : ", ") + format;
  return text;
}

std::int64_t parameters_of(const Model& model) {
  const ModelConfig& config = model.config();
  std::int64_t count = config.vocab * config.hidden;
  for (const LayerInfo& layer : model.linear_layers()) {
    count += layer.weight.in_features * layer.weight.out_features;
  }
  return config.tied_head ? count - config.vocab * config.hidden : count;
}

}  // namespace tessera::app
