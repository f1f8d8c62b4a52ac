#include "support/attention_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "core/build_config.h"
#include "core/cache_dtype.h"
#include "core/checked.h"
#include "core/philox.h"
#include "cuda/attention/backward/choose.h"
#include "cuda/attention/choose.h"
#include "reference/kv_append.h"
#include "reference/rounding.h"

namespace tessera::test {
namespace {

using reference::AttentionInputs;
using reference::rounded;

// Rows with no block, one block and all blocks, listed by hand.
BlockMask uneven_pattern(std::int64_t block, std::int64_t q_blocks, std::int64_t k_blocks) {
  std::vector<std::int64_t> offsets{0};
  std::vector<std::int32_t> indices;
  for (std::int64_t r = 0; r < q_blocks; ++r) {
    for (std::int64_t c = 0; c < k_blocks; ++c) {
      if (r % 3 == 1 ? c == (r * 5) % k_blocks : r % 3 == 2) {
        indices.push_back(static_cast<std::int32_t>(c));
      }
    }
    offsets.push_back(std::ssize(indices));
  }
  return BlockMask::from_csr(block, q_blocks, k_blocks, offsets, indices);
}

// One head of a dense call in f32, with scores and weights rounded to the dtype.
struct PlainHead {
  Array p, keep, slope;  // [n_q, n_k]
};

struct Plain {
  const AttentionInputs& in;
  DType dtype;
  std::int64_t n_q = in.q.size(1), n_k = in.k.size(1), dim = in.q.size(3);
  std::int64_t group = in.q.size(2) / in.k.size(2);
  float scale =
      in.scale != 0 ? static_cast<float>(in.scale) : 1.0f / std::sqrt(static_cast<float>(dim));

  float dot(const Array& a, std::int64_t b, std::int64_t i, std::int64_t h, const Array& other,
            std::int64_t j, std::int64_t other_h) const {
    const double *x = a.row(b, i, h), *y = other.row(b, j, other_h);
    float sum = 0;
    for (std::int64_t d = 0; d < dim; ++d) {
      sum += static_cast<float>(x[d]) * static_cast<float>(y[d]);
    }
    return sum;
  }

  PlainHead head(std::int64_t b, std::int64_t h) const {
    PlainHead result{Array({n_q, n_k}), Array({n_q, n_k}, 1.0), Array({n_q, n_k}, 1.0)};
    const float cap = static_cast<float>(in.softcap);
    for (std::int64_t i = 0; i < n_q; ++i) {
      float largest = -INFINITY, sum = 0;
      std::vector<float> s(static_cast<std::size_t>(n_k), -INFINITY);
      for (std::int64_t j = 0; j < n_k; ++j) {
        if (!reference::sees(in.mask, i, i + n_k - n_q, j)) continue;
        s[j] = static_cast<float>(rounded(scale * dot(in.q, b, i, h, in.k, j, h / group), dtype));
        if (cap > 0) {
          const float t = std::tanh(s[j] / cap);
          s[j] = static_cast<float>(rounded(cap * t, dtype));
          result.slope.at(i, j) = 1.0f - t * t;
        }
        largest = std::max(largest, s[j]);
      }
      for (float x : s) sum += largest == -INFINITY ? 0.0f : std::exp(x - largest);
      for (std::int64_t j = 0; j < n_k && sum > 0; ++j) {
        result.p.at(i, j) = rounded(std::exp(s[j] - largest) / sum, dtype);
        if (in.dropout.p == 0) continue;
        const auto u32 = [](std::int64_t x) { return static_cast<std::uint32_t>(x); };
        const PhiloxWords words = dropout_words(in.dropout.seed, u32(b), u32(h), u32(i), u32(j));
        const bool kept = words[j % 4] >= dropout_threshold(in.dropout.p);
        result.keep.at(i, j) = kept ? 1.0f / (1.0f - in.dropout.p) : 0.0f;
      }
    }
    return result;
  }
};

// to [.., d] += weight * from [.., d] in f32, for arrays that hold f32 numbers.
void add(Array& to, std::int64_t b, std::int64_t i, std::int64_t h, double weight,
         const Array& from, std::int64_t j, std::int64_t from_h) {
  double* sums = to.row(b, i, h);
  const double* row = from.row(b, j, from_h);
  for (std::int64_t d = 0; d < to.size(3); ++d) {
    sums[d] = static_cast<float>(sums[d]) + static_cast<float>(weight) * static_cast<float>(row[d]);
  }
}

// Codes have a standard deviation of kCodeSpread: some of e4m3 are subnormal, and of i8 none is
// beyond 127.
constexpr double kCodeSpread = 20;

// k or v [batch, n_k, kv_heads, dim] with this standard deviation, or codes of 8 bits.
Array keys_or_codes(const AttentionCase& c, std::uint64_t seed, double spread) {
  const bool scaled = has_scales(c.stored_dtype());
  Array x = random_normal({c.batch, c.n_k, c.kv_heads, c.dim}, seed, scaled ? kCodeSpread : spread);
  if (c.stored_dtype() != DType::i8) return x;
  for (double& value : x.data) value = std::clamp(std::round(value), -127.0, 127.0);
  return x;
}

// Scales [batch, kv_heads, n_k] that give codes about this standard deviation.
Array uneven_scales(const AttentionCase& c, std::uint64_t seed, double spread) {
  Array scales = random_normal({c.batch, c.kv_heads, c.n_k}, seed, 0.5);
  for (double& scale : scales.data) scale = std::exp2(scale) * spread / kCodeSpread;
  return scales;
}

double largest_magnitude(const Array& x) {
  double result = 0;
  for (double value : x.data) result = std::max(result, std::abs(value));
  return result;
}

}  // namespace

std::vector<Mask> every_mask(std::int64_t n_q, std::int64_t n_k) {
  const auto blocks = [&](std::int64_t block) {
    return std::pair{ceil_div(n_q, block), ceil_div(n_k, block)};
  };
  std::vector<Mask> masks{Mask::full(),         Mask::causal(),       Mask::window(0, 0),
                          Mask::window(5, 0),   Mask::window(40, 3),  Mask::window(-1, 2),
                          Mask::window(70, -1), Mask::window(-1, -1), Mask::sinks(0, 1),
                          Mask::sinks(4, 32),   Mask::sinks(70, 9),   Mask::sinks(3, 100000)};
  for (std::int64_t block : {1, 7, 16, 32, 64, 100}) {
    const auto [q, k] = blocks(block);
    masks.push_back(Mask::blocks(BlockMask::local(block, q, k, 1)));
    masks.push_back(Mask::blocks(uneven_pattern(block, q, k), block % 2 == 0));
  }
  const auto [q, k] = blocks(16);
  masks.push_back(Mask::blocks(BlockMask::random(16, q, k, std::min<std::int64_t>(k, 3), 7)));
  masks.push_back(Mask::blocks(BlockMask::strided(16, q, k, 1, 3), true));
  return masks;
}

std::vector<DType> stored_dtypes_of_f32(Device device) {
  if (!device.is_cpu()) return {DType::f32};
  return {DType::f32, DType::f16, DType::bf16};
}

std::string AttentionCase::text() const {
  return fmt::format(
      "batch {} n_q {} n_k {} heads {}/{} dim {} {} {}/{} {} scale {} softcap {} dropout {}", batch,
      n_q, n_k, heads, kv_heads, dim, mask.to_string(), name(dtype), name(stored_dtype()),
      to_string(layout), scale, softcap, dropout.p);
}

AttentionTensors::AttentionTensors(Context& ctx, const AttentionCase& c)
    : q(ctx, random_normal({c.batch, c.n_q, c.heads, c.dim}, 1, c.spread), c.dtype, c.layout),
      k(ctx, keys_or_codes(c, 2, c.spread), c.stored_dtype(), c.layout),
      v(ctx, keys_or_codes(c, 3, c.value_spread), c.stored_dtype(), c.layout),
      k_scales(ctx, uneven_scales(c, 4, c.spread), DType::f32, c.layout),
      v_scales(ctx, uneven_scales(c, 5, c.value_spread), DType::f32, c.layout),
      out(TestTensor::poisoned(ctx, {c.batch, c.n_q, c.heads, c.dim}, c.dtype, c.layout)),
      lse(TestTensor::poisoned(ctx, {c.batch, c.heads, c.n_q}, DType::f32, c.layout)),
      args{.q = q,
           .k = k,
           .v = v,
           .out = out,
           .lse = lse,
           .mask = c.mask,
           .scale = c.scale,
           .softcap = c.softcap,
           .dropout = c.dropout} {
  if (!has_scales(c.stored_dtype())) return;
  args.k_scales = k_scales;
  args.v_scales = v_scales;
}

AttentionInputs AttentionTensors::inputs() const {
  const bool scaled = has_scales(args.k.dtype);
  return {.q = q.read(),
          .k = scaled ? reference::decoded({k.read(), k_scales.read()}) : k.read(),
          .v = scaled ? reference::decoded({v.read(), v_scales.read()}) : v.read(),
          .mask = args.mask,
          .scale = args.scale,
          .softcap = args.softcap,
          .dropout = args.dropout};
}

Array plain_attention(const AttentionInputs& in, DType dtype, const Array& v_scales) {
  const Plain plain{in, dtype};
  // Codes are not rounded. The weight that multiplies them includes the scale, and is rounded with
  // it.
  const auto rounded_weight = [&](double weight, std::int64_t b, std::int64_t kv, std::int64_t j) {
    const double scale = v_scales.empty() ? 1 : v_scales.at(b, kv, j);
    return rounded(weight * scale, dtype) / scale;
  };
  Array out(in.q.shape);
  for (std::int64_t b = 0; b < in.q.size(0); ++b) {
    for (std::int64_t h = 0; h < in.q.size(2); ++h) {
      const PlainHead head = plain.head(b, h);
      for (std::int64_t i = 0; i < plain.n_q; ++i) {
        for (std::int64_t j = 0; j < plain.n_k; ++j) {
          const std::int64_t kv = h / plain.group;
          const double weight = rounded_weight(head.p.at(i, j) * head.keep.at(i, j), b, kv, j);
          add(out, b, i, h, weight, in.v, j, kv);
        }
      }
    }
  }
  return rounded(std::move(out), dtype);
}

reference::AttentionGradients plain_attention_backward(const AttentionInputs& in,
                                                       const Array& d_out, DType dtype) {
  const Plain plain{in, dtype};
  reference::AttentionGradients g{Array(in.q.shape), Array(in.k.shape), Array(in.v.shape)};
  for (std::int64_t b = 0; b < in.q.size(0); ++b) {
    for (std::int64_t h = 0; h < in.q.size(2); ++h) {
      const PlainHead head = plain.head(b, h);
      const std::int64_t kv = h / plain.group;
      for (std::int64_t i = 0; i < plain.n_q; ++i) {
        std::vector<double> dp(static_cast<std::size_t>(plain.n_k));
        float mean = 0;
        for (std::int64_t j = 0; j < plain.n_k; ++j) {
          dp[j] = rounded(head.keep.at(i, j) * plain.dot(d_out, b, i, h, in.v, j, kv), dtype);
          mean += static_cast<float>(head.p.at(i, j) * dp[j]);
        }
        for (std::int64_t j = 0; j < plain.n_k; ++j) {
          const double ds =
              rounded(head.p.at(i, j) * (dp[j] - mean) * head.slope.at(i, j) * plain.scale, dtype);
          add(g.d_q, b, i, h, ds, in.k, j, kv);
          add(g.d_k, b, j, kv, ds, in.q, i, h);
          add(g.d_v, b, j, kv, rounded(head.p.at(i, j) * head.keep.at(i, j), dtype), d_out, i, h);
        }
      }
    }
  }
  return {rounded(std::move(g.d_q), dtype), rounded(std::move(g.d_k), dtype),
          rounded(std::move(g.d_v), dtype)};
}

testing::AssertionResult good(const Array& actual, const Array& exact, const Array& plain) {
  return as_good_as(actual, exact, plain, 2 * epsilon(DType::f32) * largest_magnitude(exact));
}

testing::AssertionResult good_lse(const Array& actual, const Array& exact) {
  return close(actual, exact, 2e-6, 4e-6);
}

void for_each_attention_kernel(Context& ctx, const AttentionArgs& args,
                               const std::function<void()>& fn) {
  if constexpr (kHaveCuda) {
    if (!ctx.device().is_cpu() && !cuda::is_attention_kernel_forced(ctx)) {
      for (const char* kernel : cuda::attention_kernels(ctx, args)) {
        SCOPED_TRACE(kernel);
        cuda::force_attention_kernel(ctx, kernel);
        fn();
      }
      cuda::force_attention_kernel(ctx, "");
      return;
    }
  }
  fn();
}

std::vector<std::string> backward_kernels(Context& ctx, const AttentionBackwardArgs& args) {
  std::vector<std::string> names{""};
  if constexpr (kHaveCuda) {
    if (ctx.device().is_cpu()) return names;
    const std::vector<const char*> kernels = cuda::backward_kernels(ctx, args);
    names.insert(names.end(), kernels.begin() + 1, kernels.end());
  }
  return names;
}

void run_backward(Context& ctx, const std::string& kernel, const AttentionBackwardArgs& args) {
  if (kernel.empty()) return attention_backward(ctx, args);
  if constexpr (kHaveCuda) cuda::attention_backward_by(ctx, kernel, args);
}

void portable_attention(Context& ctx, const AttentionArgs& args) {
  if constexpr (kHaveCuda) {
    if (!ctx.device().is_cpu()) {
      const std::vector<const char*> kernels = cuda::portable_attention_kernels(args);
      const bool dense = std::string_view(kernels.front()) == "cuda.dense";
      cuda::force_attention_kernel(ctx, kernels[dense ? 1 : 0]);
    }
  }
  attention(ctx, args);
  if constexpr (kHaveCuda) {
    if (!ctx.device().is_cpu()) cuda::force_attention_kernel(ctx, "");
  }
}

void check_attention_case(Context& ctx, const AttentionCase& c) {
  SCOPED_TRACE(c.text());
  AttentionTensors t(ctx, c);
  const AttentionInputs in = t.inputs();
  const reference::AttentionResult exact = reference::attention(in);
  const bool scaled = has_scales(c.stored_dtype());
  const Array plain = plain_attention(in, c.dtype, scaled ? t.v_scales.read() : Array{});
  for_each_attention_kernel(ctx, t.args, [&] {
    t.out.restore();
    t.lse.restore();
    attention(ctx, t.args);
    EXPECT_TRUE(good(t.out.read(), exact.out, plain));
    EXPECT_TRUE(good_lse(t.lse.read(), exact.lse));
    EXPECT_TRUE(t.out.surroundings_intact() && t.lse.surroundings_intact());
    EXPECT_TRUE(t.q.untouched() && t.k.untouched() && t.v.untouched());
    EXPECT_TRUE(t.k_scales.untouched() && t.v_scales.untouched());
  });
}

void check_hidden_blocks_stay_unread(Context& ctx, const AttentionCase& c, const BlockMask& pattern,
                                     std::int64_t block) {
  AttentionTensors clean(ctx, c);
  attention(ctx, clean.args);
  const Array expected = clean.out.read();
  for (std::int64_t q_block = 0; q_block < c.n_q / block; ++q_block) {
    AttentionTensors t(ctx, c);
    Array values = t.v.read();
    for (std::int64_t j = 0; j < c.n_k; ++j) {
      if (!pattern.contains(q_block, j / block)) values.at(0, j, 0, 0) = NAN;
    }
    const TestTensor v(ctx, values, c.dtype);
    t.args.v = v;
    attention(ctx, t.args);
    const Array out = t.out.read();
    for (std::int64_t i = q_block * block; i < (q_block + 1) * block; ++i) {
      ASSERT_EQ(out.at(0, i, 0, 0), expected.at(0, i, 0, 0)) << c.text() << " " << i;
    }
  }
}

}  // namespace tessera::test
