#include "model/checkpoint/precision_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "core/checked.h"
#include "core/fail.h"

namespace tessera::model {
namespace {

[[noreturn]] void refuse_budget() {
  fail(ErrorCode::invalid_argument,
       "a budget is a share of the dense size (60%) or a size (300MB, 1.5GiB)");
}

// Bytes of a unit; 0 if there is no such unit.
double unit_of(std::string_view unit) {
  constexpr std::array<std::pair<std::string_view, double>, 7> kUnits = {{{"B", 1},
                                                                          {"KB", 1e3},
                                                                          {"MB", 1e6},
                                                                          {"GB", 1e9},
                                                                          {"KiB", 0x1p10},
                                                                          {"MiB", 0x1p20},
                                                                          {"GiB", 0x1p30}}};
  for (const auto& [name, factor] : kUnits) {
    if (name == unit) return factor;
  }
  return 0;
}

// The extra bytes of a dense layer, compared with a packed one. (Tiny layers can be smaller dense:
// those are free to keep.)
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
         "a budget of {:.3f}MB is too small: the smallest that can be met is {}, with all layers "
         "packed as {}",
         static_cast<double>(budget) / 1e6, budget_text(result.bytes), name(format));
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

std::string budget_text(std::int64_t bytes) {
  constexpr std::int64_t kStep = 1000;
  return fmt::format("{:.3f}MB", static_cast<double>(ceil_div(bytes, kStep)) / 1e3);
}

std::int64_t parse_budget(std::string_view text, std::int64_t whole) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || !(number > 0)) refuse_budget();
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  if (unit.empty()) {
    fail(ErrorCode::invalid_argument, "a budget needs a unit: say {0}% or {0}MB", text);
  }
  const double bytes = number * (unit == "%" ? static_cast<double>(whole) / 100 : unit_of(unit));
  constexpr double kMost = 0x1p62;  // so that sums of sizes cannot overflow
  if (!(bytes > 0) || !(bytes < kMost)) refuse_budget();
  return static_cast<std::int64_t>(bytes);
}

}  // namespace tessera::model
