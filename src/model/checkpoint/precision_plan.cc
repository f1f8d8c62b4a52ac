#include "model/checkpoint/precision_plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "core/checked.h"
#include "core/fail.h"

namespace tessera::model {
namespace {

[[noreturn]] void refuse_budget(std::string_view text) {
  fail(ErrorCode::invalid_argument,
       "'{}' is no size budget; give a share of the dense size (60%) or a size (300MB, 1.5GiB)",
       text);
}

double unit_of(std::string_view unit, std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 8> kUnits = {{{"", 1},
                                                                          {"B", 1},
                                                                          {"KB", 1e3},
                                                                          {"MB", 1e6},
                                                                          {"GB", 1e9},
                                                                          {"KiB", 0x1p10},
                                                                          {"MiB", 0x1p20},
                                                                          {"GiB", 0x1p30}}};
  for (const auto& [name, factor] : kUnits) {
    if (name == unit) return factor;
  }
  refuse_budget(text);
}

// What a dense layer costs more than a packed one. (Tiny layers can be smaller dense: those are
// free to keep.)
std::int64_t extra_bytes(const LayerCost& layer) { return layer.dense_bytes - layer.packed_bytes; }

double divergence_per_byte(const LayerCost& layer) {
  return layer.divergence / static_cast<double>(std::max<std::int64_t>(1, extra_bytes(layer)));
}

}  // namespace

BudgetPlan plan_for_budget(std::vector<LayerCost> layers, Format format, std::int64_t budget,
                           std::int64_t other_bytes) {
  BudgetPlan result{.plan = {.rules = {}, .otherwise = format},
                    .layers = std::move(layers),
                    .bytes = other_bytes};
  for (LayerCost& layer : result.layers) {
    layer.dense = false;
    result.bytes = checked_add(result.bytes, layer.packed_bytes);
  }
  if (result.bytes > budget) {
    fail(ErrorCode::invalid_argument,
         "a budget of {:.3f} MB is too small: with all layers packed as {} the checkpoint takes "
         "{:.3f} MB",
         static_cast<double>(budget) / 1e6, name(format), static_cast<double>(result.bytes) / 1e6);
  }
  std::vector<LayerCost*> order;
  for (LayerCost& layer : result.layers) order.push_back(&layer);
  std::stable_sort(order.begin(), order.end(), [](const LayerCost* a, const LayerCost* b) {
    return divergence_per_byte(*a) > divergence_per_byte(*b);
  });
  for (LayerCost* layer : order) {
    if (extra_bytes(*layer) > budget - result.bytes) continue;
    layer->dense = true;
    result.bytes += extra_bytes(*layer);
  }
  for (const LayerCost& layer : result.layers) {
    if (layer.dense) result.plan.rules.push_back({layer.layer, Format::dense});
  }
  return result;
}

std::int64_t parse_budget(std::string_view text, std::int64_t whole) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || !(number > 0)) refuse_budget(text);
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  const double bytes =
      unit == "%" ? number / 100 * static_cast<double>(whole) : number * unit_of(unit, text);
  constexpr double kMost = 0x1p62;  // so that sums of sizes cannot overflow
  if (!(bytes < kMost)) refuse_budget(text);
  return static_cast<std::int64_t>(bytes);
}

}  // namespace tessera::model
