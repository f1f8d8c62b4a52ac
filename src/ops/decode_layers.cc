#include "tessera/decode_layers.h"

#include <algorithm>
#include <optional>

#include "core/build_config.h"
#include "cuda/decode/decode_layers.h"
#include "ops/attention_args.h"
#include "ops/check_tiles.h"
#include "ops/op_scope.h"

namespace tessera {
namespace {

constexpr DType kHalf = DType::f16, kBf16 = DType::bf16;

constexpr WeightNames kTableNames{"embedding.table", "embedding.table.data",
                                  "embedding.table.scales", "embedding.table.zeros",
                                  "embedding.table.row_scales"};

bool fits(const DecodeLayer::Product& product, std::int64_t out, std::int64_t in) {
  return product.weight.out_features == out && product.weight.in_features == in;
}

bool fits(const DecodeLayer& layer, const DecodeLayersArgs& args) {
  const std::int64_t hidden = args.x.shape[1], inner = layer.up.weight.out_features;
  const std::int64_t width = args.heads * args.dim, kv_width = args.kv_heads * args.dim;
  if (!fits(layer.up, inner, hidden) || !fits(layer.down, hidden, inner) ||
      !fits(layer.output, hidden, width)) {
    return false;
  }
  if (args.kind == DecodeLayerKind::parallel) return fits(layer.qkv, 3 * width, hidden);
  return fits(layer.q, width, hidden) && fits(layer.k, kv_width, hidden) &&
         fits(layer.v, kv_width, hidden) && fits(layer.gate, inner, hidden);
}

// As in embedding(), for one id.
void check_token_embedding(const OpScope& op, const DecodeLayersArgs& args) {
  const TokenEmbedding& embedding = args.embedding;
  if (!embedding.ids.defined()) return;
  op.input("embedding.ids", embedding.ids, {DType::i32, DType::i64});
  op.shape("embedding.ids", embedding.ids, {1});
  op.no_overlap("x", args.x, "embedding.ids", embedding.ids);
  check_weight_for(op, kTableNames, embedding.table, args.x.device);
  op.require(embedding.table.in_features == args.x.shape[1],
             "embedding.table has {} columns, but x is {}", embedding.table.in_features, args.x);
  op.no_overlap("x", args.x, "embedding.table", embedding.table.data);
  if (!embedding.drawn.defined()) return;
  op.input("embedding.drawn", embedding.drawn, {DType::i32});
  op.shape("embedding.drawn", embedding.drawn, {-1});
  op.no_overlap("x", args.x, "embedding.drawn", embedding.drawn);
}

void check_decode_layers(const OpScope& op, const DecodeLayersArgs& args) {
  op.require(!args.layers.empty(), "there are no layers");
  op.output("x", args.x, {DType::f32, kHalf, kBf16});
  op.shape("x", args.x, {1, -1});
  check_token_embedding(op, args);
  op.require(args.final_norm.weight.defined() || !args.final_norm.bias.defined(),
             "final_norm has a bias, but no weight");
  op.input("positions", args.positions, {DType::i64});
  op.shape("positions", args.positions, {1});
  op.input("slots", args.slots, {DType::i32});
  op.shape("slots", args.slots, {1});
  op.input("pages.table", args.pages.table, {DType::i32});
  op.shape("pages.table", args.pages.table, {1, -1});
  op.input("pages.lengths", args.pages.lengths, {DType::i32});
  op.shape("pages.lengths", args.pages.lengths, {1});
  const bool parallel = args.kind == DecodeLayerKind::parallel;
  op.require(args.kv_heads > 0 && args.heads % args.kv_heads == 0 &&
                 (!parallel || args.heads == args.kv_heads),
             "{} key heads do not suit {} query heads", args.kv_heads, args.heads);
  for (const DecodeLayer& layer : args.layers) {
    op.require(fits(layer, args),
               "the weights of a layer do not fit {} heads of {}, {} key heads and x {}",
               args.heads, args.dim, args.kv_heads, args.x);
  }
  op.stored_output("keys", args.keys.first, "x", args.x);
  op.stored_output("values", args.values.first, "x", args.x);
  op.shape("keys", args.keys.first, {-1, -1, args.kv_heads, args.dim});
  op.same_shape("values", args.values.first, "keys", args.keys.first);
}

// Of one layer's attention. As in append_attention(), a page table on a GPU counts as full.
OpCost cost_of_attention(const DecodeLayersArgs& args) {
  const Tensor& keys = args.keys.first;
  const AttentionArgs attention{
      .q = Tensor(args.x.data, args.x.dtype, {1, 1, args.heads, args.dim}, args.x.device),
      .k = keys,
      .v = args.values.first,
      .mask = args.mask,
      .pages = args.pages};
  const std::int64_t row_bytes = args.dim * size_of(keys.dtype);
  const std::int64_t written = args.heads;  // the token's own
  return {2 * (key_rows(attention) + written) * row_bytes, 4 * args.dim * visible_pairs(attention)};
}

OpCost decode_layers_cost(const DecodeLayersArgs& args) {
  OpCost cost{args.x.bytes(), 0};
  if (const TokenEmbedding& embedding = args.embedding; embedding.ids.defined()) {
    cost.bytes += embedding.ids.bytes() +
                  embedding.table.bytes() / std::max<std::int64_t>(1, embedding.table.out_features);
  } else {
    cost.bytes += args.x.bytes();
  }
  cost.bytes += args.final_norm.weight.bytes() + args.final_norm.bias.bytes();
  const OpCost attention = cost_of_attention(args);
  for (const DecodeLayer& layer : args.layers) {
    cost.bytes += attention.bytes;
    cost.flops += attention.flops;
    for (const DecodeLayer::Norm* norm : {&layer.norm1, &layer.norm2}) {
      cost.bytes += norm->weight.bytes() + norm->bias.bytes();
    }
    for (const DecodeLayer::Product* product :
         {&layer.qkv, &layer.q, &layer.k, &layer.v, &layer.gate, &layer.up, &layer.down,
          &layer.output}) {
      if (!product->weight.defined()) continue;
      cost.bytes += product->weight.bytes() + product->bias.bytes();
      cost.flops += 2 * product->weight.out_features * product->weight.in_features;
    }
  }
  return cost;
}

}  // namespace

bool decode_layers(Context& ctx, const DecodeLayersArgs& args) {
  if (ctx.device().is_cpu()) return false;
  const OpScope op(ctx, "decode_layers");
  check_decode_layers(op, args);
  if constexpr (kHaveCuda) {
    const std::optional<cuda::DecodeLayersPlan> plan = cuda::plan_decode_layers(ctx, args);
    if (!plan) return false;
    // A caller that only counts goes on to count the ops that would run instead.
    if (op.only_counts([&] { return plan->scratch_bytes; })) return false;
    op.run([&] { return fmt::format("x {} layers {}", args.x, args.layers.size()); },
           [&] { return cuda::decode_layers(ctx, *plan); },
           [&] { return decode_layers_cost(args); });
  }
  return kHaveCuda;
}

bool has_decode_layers_kernel(Context& ctx, const DecodeLayersArgs& args) {
  if (ctx.device().is_cpu()) return false;
  const OpScope op(ctx, "decode_layers");
  check_decode_layers(op, args);
  if constexpr (kHaveCuda) return cuda::plan_decode_layers(ctx, args).has_value();
  return false;
}

}  // namespace tessera
