// Which part of a model one of several processes holds (tensor parallelism):
//
//   qkv, gate, up   by rows: heads, and inner features       output, down   by columns: the same
//   embedding, head by rows: the vocabulary                  norms          whole
//
// A product over columns is a part of a sum: all_reduce() adds the parts. The first rank adds bias
// and residual to its own.
#pragma once

#include <cstdint>

#include "model/checkpoint/weight_slice.h"
#include "tessera/communicator.h"
#include "tessera/model_config.h"

namespace tessera::model {

struct Shard {
  Communicator* ranks = nullptr;  // null: this process holds the whole model
  Range heads{}, kv_heads{}, inner{}, vocab{};

  bool is_part() const { return ranks != nullptr && ranks->size() > 1; }
  bool is_first() const { return !is_part() || ranks->rank() == 0; }

  // Rows of a product that has `width` of them for each head.
  static Range times(const Range& range, std::int64_t width) {
    return {range.begin * width, range.end < 0 ? -1 : range.end * width};
  }
  // The sum over the ranks, in place. Does nothing if the model is whole, or a pass only counts.
  void add_up(Context& ctx, const Tensor& data) const;
};

// What the rank holds of a model of this shape. Refuses a number of ranks that would cut a head.
Shard shard_of(const ModelConfig& config, Communicator* ranks);
// The config of the part: its own heads and inner features; the rest is the model's.
ModelConfig config_of(const ModelConfig& whole, const Shard& shard);
// The rank's part of [0, n) in units of `unit`: parts differ by one unit at most.
Range part_of(std::int64_t n, std::int64_t unit, int rank, int size);
// The most that a rank has.
std::int64_t largest_part(std::int64_t n, std::int64_t unit, int size);
std::int64_t vocab_unit(std::int64_t vocab, int size);

}  // namespace tessera::model
