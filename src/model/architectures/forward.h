// The parts of a forward pass that architectures share: the way from ids to logits around the
// layers, and attention over a paged cache.
#pragma once

#include <cstdint>

#include "core/function_ref.h"
#include "tessera/context.h"
#include "tessera/model.h"
#include "tessera/rotary.h"
#include "tessera/tensor.h"

namespace tessera::model {

// What an architecture brings to the pass.
struct PassParts {
  Weight embedding{};  // [vocab, hidden], dense or packed
  Weight head{};       // [vocab, hidden]
  // Replaces the last `rows` rows of x [tokens, hidden] by the layer's output.
  FunctionRef<void(std::int64_t layer, const Tensor& x, std::int64_t rows)> run_layer;
  FunctionRef<void(const Tensor& x, const Tensor& out)> final_norm;
};
// Embedding, layers, final norm, head. Refuses arguments that do not fit the model or each other.
// In the last layer, only rows whose logits are asked for are computed to the end (all rows if
// someone observes). The other rows leave their keys and values, and stop there.
void run_pass(Context& ctx, const Model& model, const ForwardArgs& args, const PassParts& parts);

// The last `rows` rows of a tensor.
Tensor last_rows(const Tensor& tensor, std::int64_t rows);

struct TurnAndAppendArgs {
  std::int64_t layer = 0;  // of the cache
  Tensor q{}, k{}, v{};    // [tokens, heads, dim]; q is rotated in place
  Rope rope{};
};
// Rotates the step's queries, and its keys unless keys are rotated as they are read. Appends keys
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
