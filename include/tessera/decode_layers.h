// All layers of a model over one token, as one op: from the embedding to what the final norm reads.
// On a GPU this is one kernel, which hands the token from layer to layer without launches between
// them. An architecture states its layers so; where there is no such kernel, it calls the ops one
// by one.
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

// A layer with a parallel residual (GPT-NeoX):
//
//   x + output(attention(qkv(norm1 x))) + down(activation(up(norm2 x)))
struct DecodeLayer {
  struct Product {
    Weight weight{};  // [out, in]
    Tensor bias{};    // optional [out]
  };
  struct Norm {
    Tensor weight{}, bias{};  // [hidden]
  };
  Norm norm1{}, norm2{};
  Product qkv{}, up{}, down{}, output{};
};

// The pages of a cache, one layer after the other at equal distances.
struct LayerPages {
  Tensor first{};           // [pages, page_size, kv_heads, dim], of layer 0
  std::int64_t stride = 0;  // elements from layer to layer
};

struct DecodeLayersArgs {
  std::span<const DecodeLayer> layers{};  // all of the same shapes
  Tensor x{};                             // [1, hidden], f16 for there to be a kernel; replaced
  float eps = 0;                          // of the norms
  Activation activation = Activation::none;
  std::int64_t heads = 0, dim = 0;  // qkv's features are [heads, 3, dim]: query, key and value
  Rope rope{};
  Tensor positions{};  // i64 [1]
  Tensor slots{};      // i32 [1]: page * page_size + row
  LayerPages keys{}, values{};
  PageTable pages{};  // of one sequence, whose last key is the token's
  Mask mask{};
};
// False: there is no kernel for this call, and nothing was done. The memory of weights, biases and
// norms is constant: a GPU may read it before the ops ahead have ended.
bool decode_layers(Context& ctx, const DecodeLayersArgs& args);
// Whether decode_layers() has a kernel for this call. Nothing is done.
bool has_decode_layers_kernel(Context& ctx, const DecodeLayersArgs& args);

}  // namespace tessera
