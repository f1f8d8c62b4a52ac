// The parts of a forward pass that every architecture shares: what it is asked for, and attention
// over a paged cache.
#pragma once

#include <cstdint>

#include "tessera/context.h"
#include "tessera/model.h"
#include "tessera/rotary.h"
#include "tessera/tensor.h"

namespace tessera::model {

// Refuses arguments that do not fit the model or each other.
void check_forward(const Context& ctx, const Model& model, const ForwardArgs& args);

// How many of the last tokens the last layer has to finish: those whose logits are asked for, or
// all where someone observes. Of the others it only has to leave keys and values.
std::int64_t rows_to_finish(const ForwardArgs& args);

// The last `rows` rows of a tensor.
Tensor last_rows(const Tensor& tensor, std::int64_t rows);

struct CachedAttentionArgs {
  Tensor q{};               // [rows, heads, dim], rotated; of the step's last tokens
  Tensor out{};             // like q
  std::int64_t layer = 0;   // of the cache
  std::int64_t window = 0;  // the layer's own: keys that a query sees, its own included; 0: all
  Rope rope{};              // for keys that are rotated as they are read
};
// Attention of the step's last tokens over the cache, which has their keys and values already.
void cached_attention(Context& ctx, const ForwardArgs& args, const CachedAttentionArgs& heads);

}  // namespace tessera::model
