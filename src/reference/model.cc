#include "reference/model.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include "core/thread_pool.h"
#include "core/wildcard.h"
#include "reference/attention.h"
#include "reference/linear.h"
#include "reference/modules.h"
#include "reference/norm.h"
#include "reference/quant.h"
#include "reference/rotary.h"
#include "tessera/quant.h"

namespace tessera::reference {
namespace {

// Heads [begin, begin + count * step) of [tokens, heads * dim], as [1, tokens, count, dim].
Array heads_of(const Array& x, std::int64_t dim, std::int64_t begin, std::int64_t count,
               std::int64_t step) {
  Array out({1, x.size(0), count, dim});
  for (std::int64_t t = 0; t < x.size(0); ++t) {
    for (std::int64_t h = 0; h < count; ++h) {
      for (std::int64_t d = 0; d < dim; ++d) {
        out.at(0, t, h, d) = x.at(t, (begin + h * step) * dim + d);
      }
    }
  }
  return out;
}

Array sum(Array a, const Array& b) {
  for (std::size_t i = 0; i < a.data.size(); ++i) a.data[i] += b.data[i];
  return a;
}

Array activated(Array x, Activation activation) {
  for (double& value : x.data) value = activate(activation, value);
  return x;
}

Weight row_of(const Weight& weight, std::int64_t row) {
  Weight one = weight;
  one.out_features = 1;
  for (Tensor* part : {&one.data, &one.scales, &one.zeros}) {
    if (part->defined()) *part = part->slice(0, row, row + 1);
  }
  return one;
}

std::vector<double> decoded_row(const Weight& weight, std::int64_t row) {
  const Weight one = row_of(weight, row);
  return weight.format == Format::dense ? to_array(one.data).data : dequantize(one).data;
}

}  // namespace

Array rope_frequencies(const RopeConfig& rope) {
  Array result({rope.dims / 2});
  for (std::int64_t i = 0; i < rope.dims / 2; ++i) {
    const double plain =
        std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(rope.dims));
    double& frequency = result.at(i);
    frequency = plain;
    if (rope.scaling == RopeScaling::linear) frequency = plain / rope.factor;
    if (rope.scaling != RopeScaling::llama3) continue;
    // As published: scaled by the wave length relative to the original context.
    const auto context = static_cast<double>(rope.original_max_positions);
    const double wave = 2 * std::numbers::pi / plain;
    if (wave > context / rope.low_freq_factor) {
      frequency = plain / rope.factor;
    } else if (wave >= context / rope.high_freq_factor) {
      const double smooth =
          (context / wave - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
      frequency = (1 - smooth) * plain / rope.factor + smooth * plain;
    }
  }
  return result;
}

ReferenceModel::ReferenceModel(Context& ctx, const std::filesystem::path& directory,
                               LoadOptions options)
    : ctx_(ctx),
      config_(read_model_config(directory)),
      options_(std::move(options)),
      checkpoint_(model::Checkpoint::open(directory)),
      layouts_(*checkpoint_),
      architecture_(model::find_architecture(config_)),
      names_(architecture_.modules) {}

// ---- weights ------------------------------------------------------------------------------------

Array ReferenceModel::vector(const std::string& name) const {
  return to_array(checkpoint_->at(name).tensor());
}

PackedWeight ReferenceModel::decodable(const std::string& module, std::int64_t out,
                                       std::int64_t in) const {
  const model::StoredTensor* tensor = checkpoint_->find(module + ".weight");
  const bool dense =
      tensor && (tensor->dtype == "F32" || tensor->dtype == "F16" || tensor->dtype == "BF16");
  if (!dense) return layouts_.read(module, out, in);
  // A tied head has two names.
  const bool tied = module == table_module() && module == head_module();
  const std::string alias = tied ? std::string(names_.heads.back()) : module;
  const auto kept = [&](const std::string& pattern) {
    return wildcard_match(pattern, module) || wildcard_match(pattern, alias);
  };
  const bool packs = options_.pack && options_.pack->format != Format::dense &&
                     std::none_of(options_.keep_dense.begin(), options_.keep_dense.end(), kept);
  if (packs) return quantize(ctx_, tensor->tensor(), *options_.pack);
  return {.weight = Weight::dense(tensor->tensor()), .storage = {}};
}

Array ReferenceModel::project(const Array& x, const std::string& module, std::int64_t out,
                              bool bias) const {
  const std::int64_t tokens = x.size(0), in = x.size(1);
  const PackedWeight weight = decodable(module, out, in);
  const Array added = bias ? vector(module + ".bias") : Array({out});
  Array result({tokens, out});
  ctx_.pool().parallel_for(out, [&](std::int64_t n, int) {
    const std::vector<double> row = decoded_row(weight.weight, n);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto begin = x.data.begin() + t * in;
      result.at(t, n) = std::inner_product(begin, begin + in, row.begin(), added.at(n));
    }
  });
  return result;
}

bool ReferenceModel::stored(const std::string& module) const {
  return checkpoint_->find(module + ".weight") || checkpoint_->find(module + ".weight_packed");
}

std::string ReferenceModel::head_module() const {
  for (const std::string_view head : names_.heads) {
    if (stored(std::string(head))) return std::string(head);
  }
  return std::string(names_.table);  // tied
}

std::string ReferenceModel::table_module() const {
  const std::string own(names_.table);
  return stored(own) ? own : head_module();
}

Array ReferenceModel::embed(std::span<const std::int32_t> ids) const {
  const model::StoredTensor* dense = checkpoint_->find(table_module() + ".weight");
  const PackedWeight table =
      options_.pack_embedding ? decodable(table_module(), config_.vocab, config_.hidden)
      : dense ? PackedWeight{.weight = Weight::dense(dense->tensor()), .storage = {}}
              : layouts_.read(table_module(), config_.vocab, config_.hidden);
  Array x({static_cast<std::int64_t>(ids.size()), config_.hidden});
  for (std::size_t t = 0; t < ids.size(); ++t) {
    const std::vector<double> row = decoded_row(table.weight, ids[t]);
    std::copy(row.begin(), row.end(), x.data.begin() + static_cast<std::int64_t>(t) * x.size(1));
  }
  return x;
}

// ---- layers -------------------------------------------------------------------------------------

Array ReferenceModel::norm(const Array& x, const std::string& module) const {
  const Array weight = vector(module + ".weight");
  if (architecture_.norm == NormKind::rms_norm) return rms_norm(x, weight, config_.norm_eps);
  return layer_norm(x, weight, vector(module + ".bias"), config_.norm_eps);
}

Array ReferenceModel::attention(const Array& x, std::int64_t layer) const {
  const std::int64_t tokens = x.size(0), dim = config_.head_dim;
  const std::int64_t heads = config_.heads, kv_heads = config_.kv_heads;
  const auto at = [&](std::string_view module) { return names_.in_layer(layer, module); };
  const bool bias = config_.qkv_bias;
  Array q, k, v;
  if (names_.qkv.size() == 1) {
    const Array qkv = project(x, at(names_.qkv[0]), 3 * heads * dim, bias);
    q = heads_of(qkv, dim, 0, heads, 3);
    k = heads_of(qkv, dim, 1, heads, 3);
    v = heads_of(qkv, dim, 2, heads, 3);
  } else {
    q = heads_of(project(x, at(names_.qkv[0]), heads * dim, bias), dim, 0, heads, 1);
    k = heads_of(project(x, at(names_.qkv[1]), kv_heads * dim, bias), dim, 0, kv_heads, 1);
    v = heads_of(project(x, at(names_.qkv[2]), kv_heads * dim, bias), dim, 0, kv_heads, 1);
  }
  if (config_.qk_norm) {
    q = norm(q, at(names_.q_norm));
    k = norm(k, at(names_.k_norm));
  }
  Array positions({tokens});
  std::iota(positions.data.begin(), positions.data.end(), 0.0);
  const Array frequencies = reference::rope_frequencies(config_.rope);
  const std::int64_t window = config_.windows[static_cast<std::size_t>(layer)];
  Array mixed =
      reference::attention({.q = rotary(q, positions, frequencies, RopeStyle::half_split),
                            .k = rotary(k, positions, frequencies, RopeStyle::half_split),
                            .v = v,
                            .mask = window > 0 ? Mask::window(window - 1, 0) : Mask::causal()})
          .out;
  mixed.shape = {tokens, heads * dim};
  return project(mixed, at(names_.output), config_.hidden, config_.output_bias);
}

Array ReferenceModel::mlp(const Array& x, std::int64_t layer) const {
  const bool bias = config_.mlp_bias;
  const auto widen = [&](std::string_view module) {
    return project(x, names_.in_layer(layer, module), config_.intermediate, bias);
  };
  Array inner = activated(widen(names_.gate.empty() ? names_.up : names_.gate), config_.activation);
  if (!names_.gate.empty()) {
    const Array up = widen(names_.up);
    for (std::size_t i = 0; i < inner.data.size(); ++i) inner.data[i] *= up.data[i];
  }
  return project(inner, names_.in_layer(layer, names_.down), config_.hidden, bias);
}

ReferenceModel::Output ReferenceModel::forward(std::span<const std::int32_t> ids) const {
  Output output;
  Array x = embed(ids);
  output.levels.push_back(x);
  for (std::int64_t i = 0; i < config_.layers; ++i) {
    const Array attended = sum(attention(norm(x, names_.in_layer(i, names_.norm1)), i), x);
    const Array& second = config_.parallel_residual ? x : attended;
    x = sum(mlp(norm(second, names_.in_layer(i, names_.norm2)), i), attended);
    if (i + 1 < config_.layers) output.levels.push_back(x);
  }
  x = norm(x, std::string(names_.final_norm));
  output.levels.push_back(x);
  output.logits = project(x, head_module(), config_.vocab, false);
  return output;
}

}  // namespace tessera::reference
