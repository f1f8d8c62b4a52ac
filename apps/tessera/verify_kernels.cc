// Checks the ops of a model, on its own shapes and weights, against float64. Tensors are
// contiguous, permuted (leading dimensions stored in another order), viewed (another shape over the
// same memory) and sliced (part of a larger tensor). Outputs are poisoned before each call. The
// memory around them is checked after it.
#include <fmt/format.h>

#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "model/architectures/registry.h"
#include "reference/attention.h"
#include "reference/model.h"
#include "reference/norm.h"
#include "reference/rotary.h"
#include "reference/test_tensor.h"
#include "tessera/attention.h"
#include "tessera/linear.h"
#include "tessera/norm.h"
#include "tessera/rotary.h"
#include "verify.h"

namespace tessera::app {
namespace {

using reference::Array;
using test::TestTensor;

// A tensor in one of four layouts, with canaries around it.
class LaidOut {
 public:
  static constexpr const char* kNames[] = {"contiguous", "permuted", "viewed", "sliced"};

  LaidOut(Context& ctx, const Array& values, DType dtype, int layout)
      : memory_(ctx, layout == kViewed ? flat(values) : values, dtype, layout_of(layout)) {
    reshape(layout, values.shape);
  }
  LaidOut(Context& ctx, const std::vector<std::int64_t>& shape, DType dtype, int layout)
      : memory_(TestTensor::poisoned(
            ctx, layout == kViewed ? std::vector<std::int64_t>{count(shape)} : shape, dtype,
            layout_of(layout))) {
    reshape(layout, shape);
  }
  const Tensor& view() const { return view_; }
  Array read() const {
    Array values = memory_.read();
    values.shape = shape_;
    return values;
  }
  bool intact() const { return memory_.surroundings_intact(); }

 private:
  static constexpr int kViewed = 2;
  static std::int64_t count(const std::vector<std::int64_t>& shape) {
    return static_cast<std::int64_t>(Array::count(shape));
  }
  static Array flat(Array values) {
    values.shape = {values.numel()};
    return values;
  }
  static test::Layout layout_of(int layout) {
    constexpr test::Layout kLayouts[] = {test::Layout::contiguous, test::Layout::permuted,
                                         test::Layout::contiguous, test::Layout::sliced};
    return kLayouts[layout];
  }
  void reshape(int layout, const std::vector<std::int64_t>& shape) {
    shape_ = shape;
    view_ = memory_.view();
    if (layout == kViewed) view_ = Tensor(view_.data, view_.dtype, shape, view_.device);
  }

  TestTensor memory_;
  Tensor view_;
  std::vector<std::int64_t> shape_;
};

// One unit in the last place of a dtype, times what a sum of many products may lose.
double kernel_bound(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 2e-3;
    case DType::bf16:
      return 1.6e-2;
    default:
      return 1e-5;
  }
}

class KernelCheck {
 public:
  KernelCheck(const VerifySubject& subject, const reference::ReferenceModel& reference)
      : subject_(subject), reference_(reference), dtype_(subject.model.dtype()) {}

  VerifyCheck run() {
    linears();
    norms();
    rotations();
    attentions();
    check_.verdict = fmt::format("{} calls, in {} layouts of memory", check_.rows.size(),
                                 std::size(LaidOut::kNames));
    return std::move(check_);
  }

 private:
  Array random(const std::vector<std::int64_t>& shape) {
    return test::random_normal(shape, ++seed_);
  }

  // Runs op(in, out) in every layout. The expected values are computed from the rounded input.
  template <typename Op, typename Expected>
  void each_layout(const std::string& what, const Array& values,
                   const std::vector<std::int64_t>& out_shape, double bound, Op&& op,
                   Expected&& expected) {
    std::optional<Array> reference;
    for (int layout = 0; layout < static_cast<int>(std::size(LaidOut::kNames)); ++layout) {
      const LaidOut in(subject_.ctx, values, dtype_, layout);
      const LaidOut out(subject_.ctx, out_shape, dtype_, layout);
      op(in.view(), out.view());
      if (!reference) reference = expected(in.read());
      VerifyRow row = level_row(fmt::format("{} {}", what, LaidOut::kNames[layout]), out.read(),
                                *reference, bound);
      if (!out.intact()) {
        row.text = "wrote outside its output";
        row.ok = false;
      }
      check_.rows.push_back(std::move(row));
    }
  }

  // Checks one layer of each shape and format.
  void linears() {
    std::map<std::string, const LayerInfo*> distinct;
    for (const LayerInfo& layer : subject_.model.linear_layers()) {
      distinct.emplace(to_string(layer.weight), &layer);
    }
    for (const auto& entry : distinct) {
      const LayerInfo& layer = *entry.second;
      const Weight& weight = layer.weight;
      const bool rounds =
          weight.format != Format::dense && subject_.ctx.activations() == Activations::int8;
      constexpr double kInt8Bound = 3e-2;  // activations have 8 bits
      each_layout(
          "linear " + entry.first, random({2, 3, weight.in_features}), {2, 3, weight.out_features},
          rounds ? kInt8Bound : kernel_bound(dtype_),
          [&](const Tensor& x, const Tensor& out) {
            linear(subject_.ctx, {.x = x, .weight = weight, .out = out});
          },
          [&](Array x) {
            x.shape = {6, weight.in_features};
            Array product = reference_.project(x, layer.name, weight.out_features, false);
            product.shape = {2, 3, weight.out_features};
            return product;
          });
    }
  }

  void norms() {
    const ModelConfig& config = subject_.model.config();
    const bool layer = model::find_architecture(config).norm == NormKind::layer_norm;
    const Array weight = random({config.hidden}), bias = random({config.hidden});
    const TestTensor weight_tensor(subject_.ctx, weight, DType::f32);
    const TestTensor bias_tensor(subject_.ctx, bias, DType::f32);
    const Array scale = weight_tensor.read(), shift = bias_tensor.read();
    const std::vector<std::int64_t> shape{2, 3, config.hidden};
    const auto eps = static_cast<float>(config.norm_eps);
    each_layout(
        fmt::format("{} [{}]", layer ? "layer_norm" : "rms_norm", config.hidden), random(shape),
        shape, kernel_bound(dtype_),
        [&](const Tensor& x, const Tensor& out) {
          NormArgs args{.x = x, .weight = weight_tensor, .eps = eps, .out = out};
          if (layer) args.bias = bias_tensor;
          layer ? layer_norm(subject_.ctx, args) : rms_norm(subject_.ctx, args);
        },
        [&](const Array& x) {
          return layer ? reference::layer_norm(x, scale, shift, eps)
                       : reference::rms_norm(x, scale, eps);
        });
  }

  void rotations() {
    const ModelConfig& config = subject_.model.config();
    const std::vector<float> frequencies = rope_frequencies(config.rope);
    Array table({static_cast<std::int64_t>(frequencies.size())}), positions({3});
    std::copy(frequencies.begin(), frequencies.end(), table.data.begin());
    std::iota(positions.data.begin(), positions.data.end(), 1000.0);
    const TestTensor inv_freq(subject_.ctx, table, DType::f32);
    const TestTensor at(subject_.ctx, positions, DType::i32);
    const std::vector<std::int64_t> shape{2, 3, config.heads, config.head_dim};
    each_layout(
        fmt::format("rotary {} of [{}, {}]", config.rope.dims, config.heads, config.head_dim),
        random(shape), shape, kernel_bound(dtype_),
        [&](const Tensor& x, const Tensor& out) {
          rotary(subject_.ctx,
                 {.x = x, .positions = at, .rope = {.inv_freq = inv_freq}, .out = out});
        },
        [&](const Array& x) {
          return reference::rotary(x, positions, table, RopeStyle::half_split);
        });
  }

  // Keys and values have the same layout as the queries.
  void attentions() {
    const ModelConfig& config = subject_.model.config();
    for (const auto& [queries, keys] : {std::pair<std::int64_t, std::int64_t>{1, 37}, {37, 37}}) {
      const std::vector<std::int64_t> kv_shape{2, keys, config.kv_heads, config.head_dim};
      const std::vector<std::int64_t> shape{2, queries, config.heads, config.head_dim};
      const Array k = random(kv_shape), v = random(kv_shape);
      for (int layout = 0; layout < static_cast<int>(std::size(LaidOut::kNames)); ++layout) {
        const LaidOut q_in(subject_.ctx, random(shape), dtype_, layout);
        const LaidOut k_in(subject_.ctx, k, dtype_, layout), v_in(subject_.ctx, v, dtype_, layout);
        const LaidOut out(subject_.ctx, shape, dtype_, layout);
        attention(subject_.ctx, {.q = q_in.view(),
                                 .k = k_in.view(),
                                 .v = v_in.view(),
                                 .out = out.view(),
                                 .mask = Mask::causal()});
        const Array expected =
            reference::attention(
                {.q = q_in.read(), .k = k_in.read(), .v = v_in.read(), .mask = Mask::causal()})
                .out;
        VerifyRow row = level_row(
            fmt::format("attention {} x {} of [{}/{}, {}] {}", queries, keys, config.heads,
                        config.kv_heads, config.head_dim, LaidOut::kNames[layout]),
            out.read(), expected, kernel_bound(dtype_));
        row.ok = row.ok && out.intact();
        check_.rows.push_back(std::move(row));
      }
    }
  }

  const VerifySubject& subject_;
  const reference::ReferenceModel& reference_;
  DType dtype_;
  VerifyCheck check_{.name = "kernels", .verdict = {}};
  std::uint64_t seed_ = 0;
};

}  // namespace

VerifyCheck verify_kernels(const VerifySubject& subject) {
  Context cpu({.threads = subject.ctx.threads()});
  const reference::ReferenceModel reference(cpu, subject.directory, subject.options);
  return KernelCheck(subject, reference).run();
}

}  // namespace tessera::app
