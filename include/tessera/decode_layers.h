// All layers of a model over one token, as one op, with the embedding before them and the final
// norm after them if the call names these. On a GPU this is one kernel, which hands the token from
// layer to layer without launches between them. An architecture describes its layers here; if there
// is no such kernel, it calls the ops one by one.
//
// Threads: any. A call has its Context to itself (tessera/context.h).
#pragma once

#include <cstdint>
#include <span>

#include "tessera/attention.h"
#include "tessera/context.h"
#include "tessera/linear.h"
#include "tessera/mask.h"
#include "tessera/rotary.h"
#include "tessera/tensor.h"
#include "tessera/weight.h"

namespace tessera {

// The two kinds of layers:
//
//   parallel (GPT-NeoX)   x + output(attention(qkv(norm1 x))) + down(activation(up(norm2 x)))
//   serial (Llama)        y = x + output(attention(q(norm1 x), k(norm1 x), v(norm1 x)))
//                         y + down(activation(gate(norm2 y)) * up(norm2 y))
//
// The norms of a parallel layer are layer norms, those of a serial one RMS norms.
enum class DecodeLayerKind : std::uint8_t { parallel, serial };

struct DecodeLayer {
  struct Product {
    Weight weight{};  // [out, in]
    Tensor bias{};    // optional [out]
  };
  struct Norm {
    Tensor weight{};  // [hidden]
    Tensor bias{};    // parallel: [hidden]
  };
  Norm norm1{}, norm2{};
  Product qkv{};                  // parallel: features are [heads, 3, dim], query, key and value
  Product q{}, k{}, v{}, gate{};  // serial: features of q are [heads, dim], of k, v [kv_heads, dim]
  Product up{}, down{}, output{};
};

// The pages of a cache, one layer after the other at equal distances.
struct LayerPages {
  Tensor first{};           // [pages, page_size, kv_heads, dim], of layer 0
  std::int64_t stride = 0;  // elements from layer to layer
};

// Where x starts: the token's row of a table, as embedding() reads it. On a GPU, an id out of range
// gives a row of NaN.
struct TokenEmbedding {
  Tensor ids{};    // i32 or i64 [1]
  Weight table{};  // [vocab, hidden]; only a dense one of x's dtype has a kernel
  Tensor drawn{};  // i32 [draws]; optional, as in EmbeddingArgs
};

struct DecodeLayersArgs {
  DecodeLayerKind kind = DecodeLayerKind::parallel;
  std::span<const DecodeLayer> layers{};  // all of the same shapes
  Tensor x{};                             // [1, hidden], replaced; only f16 has a kernel
  TokenEmbedding embedding{};             // without ids, x starts as what it holds
  DecodeLayer::Norm final_norm{};         // without a weight, x ends as what the last layer gives
  float eps = 0;                          // of all norms
  Activation activation = Activation::none;
  std::int64_t heads = 0, kv_heads = 0, dim = 0;  // parallel: as many key heads as query heads
  Rope rope{};
  Tensor positions{};  // i64 [1]
  Tensor slots{};      // i32 [1]: page * page_size + row
  LayerPages keys{}, values{};
  PageTable pages{};  // of one sequence, whose last key is the token's
  Mask mask{};
};
// Runs the layers. Returns false if there is no kernel for this call; then nothing was done. The
// memory of weights, biases and norms must stay constant: a GPU may read it before earlier ops have
// ended.
bool decode_layers(Context& ctx, const DecodeLayersArgs& args);
// Whether decode_layers() has a kernel for this call. Runs nothing.
bool has_decode_layers_kernel(Context& ctx, const DecodeLayersArgs& args);

}  // namespace tessera
