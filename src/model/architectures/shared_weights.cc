#include "model/architectures/shared_weights.h"

#include <algorithm>

namespace tessera::model {

Dense read_dense(WeightSource& weights, const std::string& module, std::int64_t out,
                 std::int64_t in, bool bias, const WeightSlice& slice, bool adds_bias) {
  Dense dense{weights.linear(module, out, in, slice), Tensor()};
  if (bias) dense.bias = weights.vector(module + ".bias", out, slice.rows);
  if (!adds_bias) dense.bias = Tensor();
  return dense;
}

TableAndHead::TableAndHead(WeightSource& weights, const ModuleNames& modules,
                           const ModelConfig& config, const Range& vocab)
    : weights_(weights),
      vocab_(config.vocab),
      hidden_(config.hidden),
      part_(vocab),
      table_(modules.table) {
  const auto stored = std::find_if(modules.heads.begin(), modules.heads.end(),
                                   [&](std::string_view name) { return weights.has_module(name); });
  head_ = stored == modules.heads.end() ? modules.heads.back() : *stored;
  tied_ = config.tied_head && weights.shares_table(table_, head_);
  // A file may keep either of a tied pair.
  if (tied_ && !weights.has_module(table_)) table_ = head_;
}

Weight TableAndHead::read_table() {
  return weights_.table(table_, tied_ ? head_ : table_, vocab_, hidden_, part_);
}

Weight TableAndHead::read_head(const Weight& table) {
  return tied_ ? weights_.tied_head(table_, head_, table, part_)
               : weights_.linear(head_, vocab_, hidden_, {.rows = part_});
}

}  // namespace tessera::model
