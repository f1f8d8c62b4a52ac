// attention_backward(): every kernel against the float64 twin.
//
// The bound of each gradient is derived from what a kernel rounds. With u half a unit in the last
// place of the dtype, for query i and key j:
//
//   ds = scale p slope (dp - delta)   is rounded to the dtype:      u |ds|
//   p                           is computed again, in f32:          weight_error()
//   slope, of the softcap       is 1 - tanh^2 in f32:               2^-22
//   delta = rowsum(dO O)        has O rounded to the dtype:         u sum |dO| |O|
//   dp, delta                   are sums in f32
//   dQ = ds K, dK = ds^T Q, dV = p^T dO   are rounded at the end
//
// Rounding errors of ds are independent, so their squares are added; six times the root of the sum
// leaves room. The error of delta is one number for a whole row of ds: it is added as it is.
#include <algorithm>
#include <cmath>

#include "random/by_kernel.h"
#include "random/drawn_attention.h"
#include "random/ops.h"
#include "reference/rounding.h"
#include "support/compare.h"

namespace tessera::test {
namespace {

constexpr double kSpread = 6;

struct BackwardOnDevice {
  BackwardOnDevice(Context& ctx, const DrawnAttention& call, const Array& d_out_values)
      : forward(ctx, call),
        d_out(ctx, d_out_values, call.dtype, call.out_layout),
        d_q(TestTensor::poisoned(ctx, call.in.q.shape, call.dtype, call.q_layout)),
        d_k(TestTensor::poisoned(ctx, call.in.k.shape, call.dtype, call.kv_layout)),
        d_v(TestTensor::poisoned(ctx, call.in.v.shape, call.dtype, call.kv_layout)),
        args{forward.args, d_out, d_q, d_k, d_v} {
    attention(ctx, forward.args);
  }

  AttentionOnDevice forward;
  TestTensor d_out, d_q, d_k, d_v;
  AttentionBackwardArgs args;
};

// Sequence `index` of a dense or ragged batch, as places in the arrays.
struct SequenceRows {
  std::int64_t index, batch, q_begin, n_q, k_begin, n_k;
};

std::vector<SequenceRows> sequences_of(const reference::AttentionInputs& in) {
  std::vector<SequenceRows> result;
  if (in.q_offsets.empty()) {
    for (std::int64_t b = 0; b < in.q.size(0); ++b) {
      result.push_back({b, b, 0, in.q.size(1), 0, in.k.size(1)});
    }
    return result;
  }
  for (std::size_t s = 0; s + 1 < in.q_offsets.size(); ++s) {
    result.push_back({static_cast<std::int64_t>(s), 0, in.q_offsets[s],
                      in.q_offsets[s + 1] - in.q_offsets[s], in.k_offsets[s],
                      in.k_offsets[s + 1] - in.k_offsets[s]});
  }
  return result;
}

// The bounds, from the twin's weights: softmax of one query and its gradients.
class GradientBounds {
 public:
  GradientBounds(const DrawnAttention& call, const Array& d_out, const Array& out)
      : call_(call), in_(call.in), d_out_(d_out), out_(out) {
    q = Array(in_.q.shape);
    k = v = k_straight_ = v_straight_ = Array(in_.k.shape);
    for (const SequenceRows& s : sequences_of(in_)) {
      for (std::int64_t h = 0; h < in_.q.size(2); ++h) {
        for (std::int64_t i = 0; i < s.n_q; ++i) add_query(s, h, i);
      }
    }
    for (std::size_t i = 0; i < k.data.size(); ++i) {
      k.data[i] = kSpread * std::sqrt(k.data[i]) + k_straight_.data[i];
      v.data[i] = kSpread * std::sqrt(v.data[i]) + v_straight_.data[i];
    }
  }
  // The rounding of the gradients themselves, and a smallest bound.
  void add_rounding(Array& bound, const Array& exact) const {
    const double least = call_.dtype == DType::f16 ? 0x1p-24 : 1e-9;
    for (std::size_t i = 0; i < bound.data.size(); ++i) {
      bound.data[i] += 0.51 * epsilon(call_.dtype) * std::abs(exact.data[i]) + least;
    }
  }

  Array q, k, v;

 private:
  void add_query(const SequenceRows& s, std::int64_t h, std::int64_t i) {
    const std::int64_t dim = in_.q.size(3), kv = h / (in_.q.size(2) / in_.k.size(2));
    const double* q_row = in_.q.row(s.batch, s.q_begin + i, h);
    const double* d_row = d_out_.row(s.batch, s.q_begin + i, h);
    const double* o_row = out_.row(s.batch, s.q_begin + i, h);
    find_weights(s, q_row, i, kv);
    double delta = 0, delta_error = 0;
    for (std::int64_t d = 0; d < dim; ++d) {
      delta += d_row[d] * o_row[d];
      delta_error += (u_ + sum_error_) * std::abs(d_row[d] * o_row[d]);
    }
    std::vector<double> squares(static_cast<std::size_t>(dim)), straight(squares), mean(squares);
    for (const auto& [j, p, slope] : weights_) {
      const double* k_row = in_.k.row(s.batch, s.k_begin + j, kv);
      const double* v_row = in_.v.row(s.batch, s.k_begin + j, kv);
      double dp = 0, dp_error = 0;
      for (std::int64_t d = 0; d < dim; ++d) {
        dp += d_row[d] * v_row[d];
        dp_error += sum_error_ * std::abs(d_row[d] * v_row[d]);
      }
      const double keep = 1 / (1 - double{in_.dropout.p});  // or 0: a bound takes the larger
      const double size = scale_ * p * (keep * std::abs(dp) + std::abs(delta));
      const double rounds = u_ * slope * size + subnormal_;
      const double other = (error_ * slope + 0x1p-22) * size + scale_ * slope * p * keep * dp_error;
      const double by_delta = scale_ * slope * p * delta_error;
      const double v_rounds = u_ * p * keep + subnormal_ * keep, v_other = error_ * p * keep;
      double* const k_squares = k.row(s.batch, s.k_begin + j, kv);
      double* const k_other = k_straight_.row(s.batch, s.k_begin + j, kv);
      double* const v_squares = v.row(s.batch, s.k_begin + j, kv);
      double* const v_others = v_straight_.row(s.batch, s.k_begin + j, kv);
      for (std::int64_t d = 0; d < dim; ++d) {
        squares[d] += square(rounds * k_row[d]);
        straight[d] += other * std::abs(k_row[d]);
        mean[d] += by_delta * k_row[d];
        k_squares[d] += square(rounds * q_row[d]) + square(by_delta * q_row[d]);
        k_other[d] += other * std::abs(q_row[d]);
        v_squares[d] += square(v_rounds * d_row[d]);
        v_others[d] += v_other * std::abs(d_row[d]);
      }
    }
    double* const bound = q.row(s.batch, s.q_begin + i, h);
    for (std::int64_t d = 0; d < dim; ++d) {
      bound[d] = kSpread * std::sqrt(squares[d]) + straight[d] + std::abs(mean[d]);
    }
  }

  void find_weights(const SequenceRows& s, const double* q_row, std::int64_t i, std::int64_t kv) {
    weights_.clear();
    double largest = -INFINITY, sum = 0;
    for (std::int64_t j = 0; j < s.n_k; ++j) {
      if (!reference::sees(in_.mask, i, i + s.n_k - s.n_q, j)) continue;
      const double* k_row = in_.k.row(s.batch, s.k_begin + j, kv);
      double score = 0;
      for (std::int64_t d = 0; d < in_.q.size(3); ++d) score += q_row[d] * k_row[d];
      const double tanh = in_.softcap > 0 ? std::tanh(signed_scale_ * score / in_.softcap) : 0;
      score = in_.softcap > 0 ? in_.softcap * tanh : signed_scale_ * score;
      weights_.push_back({j, score, 1 - tanh * tanh});
      largest = std::max(largest, score);
    }
    for (Visible& key : weights_) sum += key.weight = std::exp(key.weight - largest);
    for (Visible& key : weights_) key.weight /= sum;
  }
  static double square(double x) { return x * x; }

  const DrawnAttention& call_;
  const reference::AttentionInputs& in_;
  const Array &d_out_, &out_;
  const double signed_scale_ =
      in_.scale != 0 ? in_.scale : 1 / std::sqrt(static_cast<double>(in_.q.size(3)));
  const double scale_ = std::abs(signed_scale_), error_ = weight_error(call_, false);
  const double u_ = 0.51 * epsilon(call_.dtype);
  // Of a sum of `dim` products in f32, relative to the sum of their magnitudes.
  const double sum_error_ = 0x1p-24 * (4 + std::sqrt(static_cast<double>(in_.q.size(3))));
  const double subnormal_ = call_.dtype == DType::f16 ? 0x1p-25 : 0;
  Array k_straight_, v_straight_;
  struct Visible {
    std::int64_t key;
    double weight, slope;
  };
  std::vector<Visible> weights_;  // of the keys that a query sees
};

}  // namespace

void random_attention_backward(Trial& trial) {
  // The bounds cost as much as the twin, in one thread.
  const DrawnAttention call =
      draw_attention(trial.draws, trial.on_cpu(), std::min<std::int64_t>(trial.work, 1 << 23),
                     AttentionUse::training);
  const bool deterministic = trial.draws.chance("deterministic", 50);
  const Array d_out = reference::rounded(
      random_normal(call.in.q.shape, trial.draws.seed("d_out_seed")), call.dtype);
  trial.begin("exact");
  const reference::AttentionGradients exact = reference::attention_backward(call.in, d_out);
  GradientBounds bounds(call, d_out, reference::attention(call.in).out);
  bounds.add_rounding(bounds.q, exact.d_q);
  bounds.add_rounding(bounds.k, exact.d_k);
  bounds.add_rounding(bounds.v, exact.d_v);
  BackwardOnDevice any(trial.ctx, call, d_out);
  any.args.deterministic = deterministic;
  for (const std::string& kernel : backward_kernel_names(trial.ctx, any.args)) {
    trial.begin(kernel);
    BackwardOnDevice run(trial.ctx, call, d_out);
    run.args.deterministic = deterministic;
    backward_by(trial.ctx, kernel, run.args);
    trial.expect_within(run.d_q.read(), exact.d_q, bounds.q, "d_q");
    trial.expect_within(run.d_k.read(), exact.d_k, bounds.k, "d_k");
    trial.expect_within(run.d_v.read(), exact.d_v, bounds.v, "d_v");
    for (const TestTensor* gradient : {&run.d_q, &run.d_k, &run.d_v}) {
      trial.expect(gradient->surroundings_intact(), "something around a gradient was written");
    }
    trial.expect(run.forward.inputs_untouched() && run.d_out.untouched(), "an input was written");
    if (!deterministic) continue;
    BackwardOnDevice again(trial.others, call, d_out);
    again.args.deterministic = true;
    backward_by(trial.others, kernel, again.args);
    trial.expect(identical(run.d_q.read(), again.d_q.read()) &&
                     identical(run.d_k.read(), again.d_k.read()) &&
                     identical(run.d_v.read(), again.d_v.read()),
                 "other bits the second time");
  }
}

}  // namespace tessera::test
