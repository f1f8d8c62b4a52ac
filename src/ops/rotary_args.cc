#include "ops/rotary_args.h"

#include <string>

#include "core/type_switch.h"

namespace tessera {

void check_rope(const OpScope& op, const Rope& rope, const char* arg, const Tensor& x) {
  const Tensor& inv_freq = rope.inv_freq;
  const std::int64_t dim = x.size(-1);
  op.input("rope.inv_freq", inv_freq, {DType::f32});
  op.shape("rope.inv_freq", inv_freq, {-1});
  op.require(inv_freq.shape[0] > 0, "rope.inv_freq is empty: give one frequency for each pair");
  op.require(inv_freq.shape[0] <= dim / 2,
             "rope.inv_freq rotates {} pairs, but a head of {} has {} elements: at most {} pairs",
             inv_freq.shape[0], arg, dim, dim / 2);
}

void check_positions(const OpScope& op, const Tensor& positions) {
  const std::int64_t tokens = positions.size(-1),
                     batches = positions.rank == 2 ? positions.size(0) : 1;
  with_index_type(positions.dtype, [&](auto type) {
    for (std::int64_t b = 0; b < batches; ++b) {
      const auto* row = positions.ptr<const decltype(type)>() + b * positions.strides[0];
      for (std::int64_t t = 0; t < tokens; ++t) {
        if (row[t] >= 0) continue;
        op.refuse("positions[{}{}] is {}; a position must be at least 0",
                  positions.rank == 2 ? std::to_string(b) + ", " : "", t, row[t]);
      }
    }
  });
}

}  // namespace tessera
