#include "cuda/decode/decode_layers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <initializer_list>
#include <optional>

#include "core/workspace.h"
#include "cuda/decode/attention_sizes.h"
#include "cuda/decode/call.h"
#include "cuda/decode/persistent_kernels.h"
#include "cuda/runtime/blocks_at_once.h"
#include "cuda/runtime/state.h"

namespace tessera::cuda {
namespace {

// With more keys than this, cuda.split reads them so much faster that running op by op wins
// (docs/notebook/decode.md). A step is planned by the keys that its page table has room for, which
// grows with the sequence: when a captured step is planned, the lengths are not known.
constexpr std::int64_t kMostKeys = 3072;

using decode::Call;
using decode::PersistentKernel;
using decode::StageShape;

// The products of a layer, by decode::LayerWeight.
struct LayerProducts {
  const DecodeLayer::Product* at[decode::kMostWeights];
  int count;
};
LayerProducts products_of(DecodeLayerKind kind, const DecodeLayer& layer) {
  LayerProducts products{};
  auto& at = products.at;
  at[decode::kDown] = &layer.down;
  at[decode::kOutput] = &layer.output;
  if (kind == DecodeLayerKind::parallel) {
    at[decode::kQkv] = &layer.qkv;
    at[decode::kUp] = &layer.up;
    products.count = decode::kStages;
  } else {
    at[decode::kQkv] = &layer.q;
    at[decode::kKeyWeight] = &layer.k;
    at[decode::kValueWeight] = &layer.v;
    at[decode::kUp] = &layer.gate;
    at[decode::kUpWeight] = &layer.up;
    products.count = decode::kMostWeights;
  }
  return products;
}

bool is_contiguous_vector(const Tensor& tensor, std::int64_t size, DType dtype) {
  return tensor.rank == 1 && tensor.shape[0] == size && tensor.dtype == dtype &&
         (size <= 1 || tensor.strides[0] == 1);
}

bool takes_weight(const PersistentKernel& kernel, const Weight& weight, const Weight& first,
                  DType dtype) {
  if (weight.format != first.format || weight.out_features % kernel.rows != 0 ||
      weight.in_features % kernel.depth != 0) {
    return false;
  }
  if (weight.format != Format::dense) return weight.layout == WeightLayout::cuda_tiles;
  return weight.constant && weight.data.dtype == dtype &&
         weight.data.strides[0] == weight.in_features &&
         reinterpret_cast<std::uintptr_t>(weight.data.data) % 16 == 0;
}

// Rows are read in vectors.
bool takes_embedding(const DecodeLayersArgs& args) {
  if (!args.embedding.ids.defined()) return true;
  const Weight& table = args.embedding.table;
  return table.format == Format::dense && table.data.dtype == args.x.dtype &&
         table.data.strides[1] == 1 && table.data.strides[0] % 8 == 0 &&
         reinterpret_cast<std::uintptr_t>(table.data.data) % 16 == 0;
}

bool takes_norm(const DecodeLayer::Norm& norm, const DecodeLayersArgs& args) {
  const std::int64_t hidden = args.x.shape[1];
  if (!is_contiguous_vector(norm.weight, hidden, args.x.dtype)) return false;
  if (args.kind == DecodeLayerKind::serial) return !norm.bias.defined();
  return is_contiguous_vector(norm.bias, hidden, args.x.dtype);
}

bool takes_layer(const PersistentKernel& kernel, const DecodeLayer& layer, const DecodeLayer& first,
                 const DecodeLayersArgs& args) {
  const LayerProducts products = products_of(args.kind, layer);
  const LayerProducts of_first = products_of(args.kind, first);
  for (int w = 0; w < products.count; ++w) {
    const Weight &weight = products.at[w]->weight, &same = of_first.at[w]->weight;
    if (!takes_weight(kernel, weight, of_first.at[0]->weight, args.x.dtype) ||
        weight.out_features != same.out_features || weight.in_features != same.in_features) {
      return false;
    }
    const Tensor& bias = products.at[w]->bias;
    if (bias.defined() && !is_contiguous_vector(bias, weight.out_features, args.x.dtype)) {
      return false;
    }
  }
  return takes_norm(layer.norm1, args) && takes_norm(layer.norm2, args);
}

// Whether rows can be read in vectors, and are alike for keys and values.
bool takes_pages(const DecodeLayersArgs& args) {
  const Tensor& keys = args.keys.first;
  if (args.pages.table.shape[1] * keys.shape[1] > kMostKeys) return false;
  if (!std::has_single_bit(static_cast<std::uint64_t>(keys.shape[1]))) return false;
  if (args.keys.stride != args.values.stride || args.keys.stride % 8 != 0) return false;
  for (const LayerPages* pages : {&args.keys, &args.values}) {
    const Tensor& first = pages->first;
    if (first.dtype != args.x.dtype || reinterpret_cast<std::uintptr_t>(first.data) % 16 != 0) {
      return false;
    }
    for (int d = 0; d < 3; ++d) {
      if (first.strides[d] != keys.strides[d] || first.strides[d] % 8 != 0) return false;
      if (first.strides[d] * size_of(first.dtype) > 0x7fffffff) return false;
    }
  }
  return true;
}

int divide_up(int a, int b) { return (a + b - 1) / b; }

// How much longer the busiest block works than with a perfectly even division.
double imbalance(int tasks, int blocks) {
  return static_cast<double>(divide_up(tasks, blocks)) * blocks / tasks;
}

// The number of parts into which the depth is cut, for a product into the residual stream. Blocks
// take whole tasks: with few tasks, some blocks have twice as much to do as others. In parallel
// layers, down and output have the same tiles and parts.
int choose_parts(int tiles, std::initializer_list<int> units, int blocks) {
  int best = 1;
  for (int parts = 2; parts <= decode::kMostParts; parts *= 2) {
    if (std::any_of(units.begin(), units.end(), [&](int each) { return each % parts != 0; })) break;
    // It must gain a tenth: more parts mean more sums to read.
    if (imbalance(tiles * parts, blocks) < 0.9 * imbalance(tiles * best, blocks)) best = parts;
  }
  return best;
}

void plan_stages(const DecodeLayersArgs& args, DecodeLayersPlan& plan) {
  const LayerProducts products = products_of(args.kind, args.layers.front());
  const PersistentKernel& kernel = *plan.kernel;
  const auto tiles = [&](int weight) {
    return static_cast<int>(products.at[weight]->weight.out_features) / kernel.rows;
  };
  const auto units = [&](int weight) {
    return static_cast<int>(products.at[weight]->weight.in_features) / kernel.depth;
  };
  Call& call = plan.call;
  const int into_x = tiles(decode::kDown), down = units(decode::kDown),
            output = units(decode::kOutput);
  call.stages[decode::kQkv] = {tiles(decode::kQkv), 1, units(decode::kQkv)};
  call.stages[decode::kUp] = {tiles(decode::kUp), 1, units(decode::kUp)};
  if (args.kind == DecodeLayerKind::parallel) {
    const int parts = choose_parts(into_x, {down, output}, plan.blocks);
    call.stages[decode::kDown] = {into_x, parts, down / parts};
    call.stages[decode::kOutput] = {into_x, parts, output / parts};
    return;
  }
  call.q_tiles = tiles(decode::kQkv);
  call.kv_tiles = tiles(decode::kKeyWeight);
  call.stages[decode::kQkv].tiles += 2 * call.kv_tiles;
  call.stages[decode::kUp].tiles *= 2;
  call.stages[decode::kUp].together = 2;
  const int down_parts = choose_parts(into_x, {down}, plan.blocks);
  const int output_parts = choose_parts(into_x, {output}, plan.blocks);
  call.stages[decode::kDown] = {into_x, down_parts, down / down_parts};
  call.stages[decode::kOutput] = {into_x, output_parts, output / output_parts};
}

int most_tasks(const StageShape& stage, int blocks) {
  return divide_up(stage.tiles * stage.parts / stage.together, blocks) * stage.together;
}
// The most parts of the depth that the tasks of a block extend over.
int most_parts(const StageShape& stage, int blocks) {
  const int tasks = most_tasks(stage, blocks);
  return std::min(stage.parts, (tasks - 1 + stage.tiles - 1) / stage.tiles + 1);
}

void plan_shared_memory(DecodeLayerKind kind, DecodeLayersPlan& plan) {
  Call& call = plan.call;
  const PersistentKernel& kernel = *plan.kernel;
  const bool parallel = kind == DecodeLayerKind::parallel;
  const auto activation_bytes = [&](int s) {
    const StageShape& stage = call.stages[s];
    return kernel.zero_bytes + most_parts(stage, plan.blocks) * stage.units * kernel.depth * 2;
  };
  const auto slots = [&](int s) {
    return (most_tasks(call.stages[s], plan.blocks) + decode::kWarps) * kernel.rows;
  };
  // A parallel layer has two norms at once, and the sums of two products.
  call.x_bytes = (parallel ? 2 : 1) * activation_bytes(decode::kQkv);
  call.slot_floats = !parallel ? 0
                               : std::max(slots(decode::kQkv) + slots(decode::kUp),
                                          slots(decode::kDown) + slots(decode::kOutput));
  for (int s = 0; s < decode::kStages; ++s) {
    call.x_bytes = std::max(call.x_bytes, activation_bytes(s));
    call.slot_floats = std::max(call.slot_floats, slots(s));
    call.most_rows += most_tasks(call.stages[s], plan.blocks) * kernel.rows;
  }
  const int attention_bytes = 4 * decode::attention_floats(call.dim, kernel.queries);
  call.x_bytes = std::max(call.x_bytes, kernel.zero_bytes + attention_bytes);
  call.slot_floats = divide_up(call.slot_floats, 4) * 4;
}

void plan_attention(const DecodeLayersArgs& args, DecodeLayersPlan& plan) {
  Call& call = plan.call;
  call.heads = static_cast<int>(args.heads);
  call.dim = static_cast<int>(args.dim);
  call.group = static_cast<int>(args.heads / args.kv_heads);
  call.teams = static_cast<int>(args.kv_heads) * divide_up(call.group, plan.kernel->queries);
  call.most_splits = std::max(1, plan.blocks / call.teams);
  call.pairs = static_cast<int>(args.rope.inv_freq.shape[0]);
  const int dim = call.dim, q_rows = call.heads * dim, kv_rows = q_rows / call.group;
  if (args.kind == DecodeLayerKind::parallel) {
    call.q = {0, 3 * dim};
    call.k = {dim, 3 * dim};
    call.v = {2 * dim, 3 * dim};
  } else {
    call.q = {0, dim};
    call.k = {q_rows, dim};
    call.v = {q_rows + kv_rows, dim};
  }
}

void fill_layer(const DecodeLayersArgs& args, std::size_t l, decode::LayerWeights& to) {
  const DecodeLayer& layer = args.layers[l];
  const LayerProducts products = products_of(args.kind, layer);
  for (int w = 0; w < products.count; ++w) {
    const Weight& weight = products.at[w]->weight;
    to.codes[w] = weight.data.data;
    to.scales[w] = weight.scales.data;
    to.row_scales[w] = weight.row_scales.ptr<const float>();
    to.bias[w] = products.at[w]->bias.data;
  }
  const DecodeLayer::Norm* norms[] = {&layer.norm1, &layer.norm2};
  for (int n = 0; n < 2; ++n) {
    to.norm_weight[n] = norms[n]->weight.data;
    to.norm_bias[n] = norms[n]->bias.data;
  }
  const std::int64_t bytes =
      static_cast<std::int64_t>(l) * args.keys.stride * size_of(args.keys.first.dtype);
  to.keys = static_cast<char*>(args.keys.first.data) + bytes;
  to.values = static_cast<char*>(args.values.first.data) + bytes;
}

void fill_call(const DecodeLayersArgs& args, Call& call) {
  call.eps = args.eps;
  call.activation = args.activation;
  call.scale_log2 =
      static_cast<float>(1.4426950408889634 / std::sqrt(static_cast<double>(args.dim)));
  call.inv_freq = args.rope.inv_freq.ptr<const float>();
  call.half_split = args.rope.style == RopeStyle::half_split;
  call.positions = args.positions.data;
  call.slots = args.slots.ptr<const std::int32_t>();
  call.table = args.pages.table.ptr<const std::int32_t>();
  call.lengths = args.pages.lengths.ptr<const std::int32_t>();
  call.holes = args.pages.holes.ptr<const std::int32_t>();
  call.width = static_cast<int>(args.pages.table.shape[1]);
  const Tensor& keys = args.keys.first;
  call.page_log2 = std::countr_zero(static_cast<std::uint64_t>(keys.shape[1]));
  call.pool_pages = keys.shape[0];
  const auto bytes_of = [&](int d) {
    return static_cast<std::uint32_t>(keys.strides[d] * size_of(keys.dtype));
  };
  call.page_bytes = bytes_of(0);
  call.row_bytes = bytes_of(1);
  call.head_bytes = bytes_of(2);
  call.window = args.mask.kind() == Mask::Kind::window ? static_cast<int>(args.mask.left()) + 1 : 0;
  call.x = args.x.data;
  if (const TokenEmbedding& embedding = args.embedding; embedding.ids.defined()) {
    const Tensor& table = embedding.table.data;
    call.token = {.table = table.data,
                  .rows = table.shape[0],
                  .row_bytes = table.strides[0] * size_of(table.dtype),
                  .id = embedding.ids.data,
                  .is_wide = embedding.ids.dtype == DType::i64,
                  .drawn = DrawnIds(embedding.drawn)};
  }
  call.final_weight = args.final_norm.weight.data;
  call.final_bias = args.final_norm.bias.data;
  for (std::size_t l = 0; l < args.layers.size(); ++l) fill_layer(args, l, call.weights[l]);
}

// ---- scratch ------------------------------------------------------------------------------------

// Pieces of one allocation, in this order.
struct Scratch {
  std::int64_t bytes = 0;

  std::int64_t take(std::int64_t size) {
    constexpr std::int64_t kAlignment = 256;
    const std::int64_t at = bytes;
    bytes += (size + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }
};

// Places the pieces from `memory` on, and returns their total size in bytes.
std::int64_t place_scratch(const PersistentKernel& kernel, char* memory, Call& call) {
  constexpr std::int64_t kHalf = 2, kFloat = 4;
  Scratch scratch;
  const std::int64_t qkv = std::int64_t{call.stages[decode::kQkv].tiles} * kernel.rows;
  const std::int64_t splits = std::int64_t{call.most_splits} * call.heads;
  call.qkv = memory + scratch.take(kHalf * qkv);
  call.activated = memory + scratch.take(kHalf * call.inner);
  const int parts = std::max(call.stages[decode::kDown].parts, call.stages[decode::kOutput].parts);
  call.sums = reinterpret_cast<float*>(memory + scratch.take(kFloat * parts * call.hidden));
  call.attended = reinterpret_cast<float*>(memory + scratch.take(kFloat * splits * call.dim));
  call.softmaxes = reinterpret_cast<float*>(memory + scratch.take(kFloat * splits * 2));
  return scratch.bytes;
}

}  // namespace

std::optional<DecodeLayersPlan> plan_decode_layers(Context& ctx, const DecodeLayersArgs& args) {
  if (args.layers.empty() || std::ssize(args.layers) > decode::kMostLayers) return {};
  const DecodeLayer& first = args.layers.front();
  const Format format = products_of(args.kind, first).at[0]->weight.format;
  const State& state = state_of(ctx);
  DecodeLayersPlan plan{.kernel = decode::persistent_kernel_for(args.kind, format, args.x.dtype),
                        .blocks = blocks_at_once(state.limits())};
  if (plan.kernel == nullptr || args.x.shape[0] != 1 || args.x.strides[1] != 1) return {};
  if (args.x.shape[1] > plan.kernel->most_hidden || args.x.shape[1] % 8 != 0) return {};
  if (args.dim > decode::kMostDim || args.dim % decode::kLaneElements != 0) return {};
  if (!takes_pages(args) || !takes_embedding(args)) return {};
  if (args.final_norm.weight.defined() && !takes_norm(args.final_norm, args)) return {};
  const Mask& mask = args.mask;
  const bool is_window = mask.kind() == Mask::Kind::window && mask.left() >= 0;
  if (mask.kind() != Mask::Kind::causal && !is_window) return {};
  for (const DecodeLayer& layer : args.layers) {
    if (!takes_layer(*plan.kernel, layer, first, args)) return {};
  }

  Call& call = plan.call;
  call.layers = static_cast<int>(args.layers.size());
  call.hidden = static_cast<int>(args.x.shape[1]);
  call.inner = static_cast<int>(first.up.weight.out_features);
  plan_stages(args, plan);
  plan_attention(args, plan);
  plan_shared_memory(args.kind, plan);
  constexpr int kStaticBytes = 1024;  // at most, besides what a launch requests
  if (plan.kernel->shared_bytes(call) + kStaticBytes > state.limits().shared_bytes) return {};
  fill_call(args, call);
  Call placed = call;
  plan.scratch_bytes = place_scratch(*plan.kernel, nullptr, placed);
  return plan;
}

const char* decode_layers(Context& ctx, const DecodeLayersPlan& plan) {
  Workspace::Frame frame(ctx.workspace());
  Call call = plan.call;
  place_scratch(*plan.kernel, frame.take<char>(plan.scratch_bytes), call);
  call.signals = state_of(ctx).counters() + State::kWorkCounters;
  plan.kernel->start(ctx, plan.blocks, call);
  return "cuda.persistent";
}

}  // namespace tessera::cuda
