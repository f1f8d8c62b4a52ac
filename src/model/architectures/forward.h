// The parts of a forward pass that architectures share: from ids to the first layer, from the last
// layer to logits, and attention over a paged cache.
#pragma once

#include <cstdint>
#include <span>

#include "core/function_ref.h"
#include "core/workspace.h"
#include "model/architectures/shard.h"
#include "tessera/context.h"
#include "tessera/decode_layers.h"
#include "tessera/mask.h"
#include "tessera/model.h"
#include "tessera/rotary.h"
#include "tessera/tensor.h"

namespace tessera::model {

// Rows of a step that a layer computes to the end. For the other rows it computes only keys and
// values.
struct FinishedRows {
  std::int64_t count = 0;
  std::int64_t first = 0;  // if they are neighbours; -1: they are gathered by `index`
  Tensor index{};          // i32 [count]
  std::span<const AttentionGroup> groups{};
  std::int64_t fixed = -1;  // LinearArgs::fixed_rows of products over them
};
FinishedRows all_rows(const CacheStep& step);
// These rows of a matrix [tokens, n]: a view, or a copy in the frame.
Tensor take_rows(Context& ctx, Workspace::Frame& frame, const FinishedRows& rows,
                 const Tensor& matrix);

// What an architecture provides for the pass.
struct PassParts {
  Weight embedding{};  // [vocab, hidden], dense or packed
  Weight head{};       // [vocab, hidden]
  const Shard& shard;  // whose rows of both these are
  // Runs a layer over x [tokens, hidden] and replaces `out` by its output. `out` has the finished
  // rows of x: it is x, a part of x or a copy. No rows: only keys and values are left behind.
  FunctionRef<void(std::int64_t layer, const Tensor& x, const FinishedRows& rows,
                   const Tensor& out)>
      run_layer;
  // Runs all layers of a step of one token at once, then the final norm: x [1, hidden] is replaced
  // by what the head reads. False: it did nothing.
  FunctionRef<bool(const Tensor& x)> run_all_layers;
  bool all_layers_embed;  // run_all_layers() reads the embedding too; else x is the token's row
  FunctionRef<void(const Tensor& x, const Tensor& out)> final_norm;
};
// Whether a step is one token of one sequence, on a GPU, and nothing observes the layers.
bool is_single_token(const Context& ctx, const ForwardArgs& args);
// Embedding, layers, final norm, head. Refuses arguments that do not fit the model or each other.
// In the last layer, only rows whose logits are asked for are computed to the end (all rows if
// someone observes).
void run_pass(Context& ctx, const Model& model, const ForwardArgs& args, const PassParts& parts);

// What a query may see under the cache's policy and in a layer's own window (0: none).
Mask narrowed(const Mask& mask, std::int64_t window);

// The cache's keys or values as decode_layers() takes them.
LayerPages key_pages(const PagePool& pool);
LayerPages value_pages(const PagePool& pool);

struct RotateAndAppendArgs {
  std::int64_t layer = 0;  // of the cache
  Tensor q{}, k{}, v{};    // [tokens, heads, dim]; q is rotated in place
  Rope rope{};
};
// Rotates the step's queries, and its keys unless they are rotated as they are read. Appends keys
// and values to the cache.
void rotate_and_append(Context& ctx, const ForwardArgs& args, const RotateAndAppendArgs& heads);

struct CachedAttentionArgs {
  std::span<const AttentionGroup> groups{};  // of the rows of q
  Tensor q{};                                // [rows, heads, dim], rotated
  Tensor out{};                              // like q
  std::int64_t layer = 0;                    // of the cache
  std::int64_t window = 0;  // the layer's own: keys that a query sees, its own included; 0: all
  Rope rope{};              // for keys that are rotated as they are read
};
// Attention over the cache, which has the step's keys and values already.
void cached_attention(Context& ctx, const ForwardArgs& args, const CachedAttentionArgs& heads);

struct AppendAndAttendArgs {
  RotateAndAppendArgs append{};
  std::int64_t window = 0;  // as in CachedAttentionArgs
  Tensor out{};             // [tokens, heads, dim]
};
// Both at once (append_attention), in a step that decodes: each sequence has few tokens, and all
// rows are finished. False: it is not such a step, and nothing was done.
bool append_and_attend(Context& ctx, const ForwardArgs& args, const FinishedRows& rows,
                       const AppendAndAttendArgs& heads);

}  // namespace tessera::model
