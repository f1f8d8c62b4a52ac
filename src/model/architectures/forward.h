// The parts of a forward pass that every architecture shares: the way from ids to logits around its
// layers, and attention over a paged cache.
#pragma once

#include <cstdint>
#include <functional>

#include "tessera/context.h"
#include "tessera/model.h"
#include "tessera/rotary.h"
#include "tessera/tensor.h"

namespace tessera::model {

// What an architecture brings to the pass.
struct PassParts {
  Weight embedding{};  // [vocab, hidden], dense or packed
  Weight head{};       // [vocab, hidden]
  // x [tokens, hidden] becomes the layer's output, in its last `rows` rows.
  std::function<void(std::int64_t layer, const Tensor& x, std::int64_t rows)> run_layer{};
  std::function<void(const Tensor& x, const Tensor& out)> final_norm{};
};
// Embedding, layers, final norm, head. Refuses arguments that do not fit the model or each other.
// Of the last layer only those rows are finished whose logits are asked for, or all where someone
// observes; of the others it leaves keys and values.
void run_pass(Context& ctx, const Model& model, const ForwardArgs& args, const PassParts& parts);

// The last `rows` rows of a tensor.
Tensor last_rows(const Tensor& tensor, std::int64_t rows);

struct TurnAndAppendArgs {
  std::int64_t layer = 0;  // of the cache
  Tensor q{}, k{}, v{};    // [tokens, heads, dim]; q is turned where it is
  Rope rope{};
};
// Turns the step's queries, and its keys unless they are turned as they are read, and appends keys
// and values to the cache.
void turn_and_append(Context& ctx, const ForwardArgs& args, const TurnAndAppendArgs& heads);

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
