#include <string>
#include <vector>

#include "core/fail.h"
#include "model/architectures/config_parts.h"
#include "model/checkpoint/quote.h"

namespace tessera::model {
namespace {

// The window of one layer that layer_types names.
std::int64_t window_of(const JsonView& json, const std::string& type, std::size_t layer,
                       const WindowRule& rule, const std::string& architecture) {
  const bool sliding = type == "sliding_attention";
  if (!sliding && type != "full_attention") {
    fail(ErrorCode::file,
         "{}: layer_types[{}] is {}, which is not supported; supported: full_attention, "
         "sliding_attention",
         json.where(), layer, in_quotes(type));
  }
  if (sliding && rule.window == 0) {
    fail(ErrorCode::file, "{}: layer_types[{}] is sliding_attention, but there is no {}",
         json.where(), layer, rule.from);
  }
  if (!sliding && rule.window > 0 && !rule.mixed) {
    fail(ErrorCode::file,
         "{}: layer_types[{}] is full_attention, but the sliding_window of {} holds for all "
         "layers; set it to null, or leave layer_types out",
         json.where(), layer, architecture);
  }
  return sliding ? rule.window : 0;
}

}  // namespace

std::int64_t read_sliding_window(const JsonView& json, std::int64_t otherwise) {
  const auto given = json.optional_integer("sliding_window", 1, kMaxTokens);
  return given.value_or(json.lacks("sliding_window") ? otherwise : 0);
}

void read_windows(const JsonView& json, const WindowRule& rule, ModelConfig& config) {
  config.windows.assign(static_cast<std::size_t>(config.layers), 0);
  for (std::int64_t i = rule.full_layers; i < config.layers; ++i) {
    config.windows[static_cast<std::size_t>(i)] = rule.window;
  }
  const std::vector<std::string> types = json.strings("layer_types");
  if (types.empty()) return;
  if (static_cast<std::int64_t>(types.size()) != config.layers) {
    fail(ErrorCode::file, "{}: layer_types names {} layers, but num_hidden_layers is {}",
         json.where(), types.size(), config.layers);
  }
  for (std::size_t i = 0; i < types.size(); ++i) {
    config.windows[i] = window_of(json, types[i], i, rule, config.architecture);
  }
}

}  // namespace tessera::model
