// FlashAttention: one product for query, key and value, rotary embedding in place, attention, one
// product out.
#include <numeric>
#include <vector>

#include "core/fail.h"
#include "core/workspace.h"
#include "modules/host_tensor.h"
#include "tessera/modules.h"

namespace tessera {

FlashAttention::FlashAttention(Context& ctx, std::int64_t d_model, std::int64_t n_heads,
                               const Options& options)
    : n_heads_(n_heads),
      kv_heads_(options.kv_heads == 0 ? n_heads : options.kv_heads),
      dtype_(options.dtype),
      rope_style_(options.rope_style) {
  if (n_heads < 1 || d_model < 1 || d_model % n_heads != 0) {
    fail(ErrorCode::invalid_argument, "{} heads do not divide a model dimension of {}", n_heads,
         d_model);
  }
  if (kv_heads_ < 1 || n_heads % kv_heads_ != 0) {
    fail(ErrorCode::invalid_argument, "{} key/value heads do not divide {} query heads", kv_heads_,
         n_heads);
  }
  head_dim_ = d_model / n_heads;
  if (options.rotary_dims < 0 || options.rotary_dims > head_dim_ || options.rotary_dims % 2 != 0) {
    fail(ErrorCode::invalid_argument,
         "{} rotary dimensions: an even number up to the head dimension, {}, is accepted",
         options.rotary_dims, head_dim_);
  }
  const std::int64_t qkv_rows = (n_heads_ + 2 * kv_heads_) * head_dim_;
  qkv_ = Linear(ctx, d_model, qkv_rows, Activation::none, options.bias, dtype_, options.seed);
  output_ = Linear(ctx, d_model, d_model, Activation::none, options.bias, dtype_, options.seed + 1);
  if (options.rotary_dims > 0) {
    const std::vector<float> frequencies = rope_inv_freq(options.rotary_dims, options.rope_theta);
    const std::int64_t pairs = options.rotary_dims / 2;
    inv_freq_storage_ = Buffer(DType::f32, {pairs}, ctx.device());
    inv_freq_ = inv_freq_storage_.tensor(DType::f32, {pairs});
    fill(ctx, inv_freq_, frequencies);
  }
}

void FlashAttention::forward(Context& ctx, const Tensor& x, const Tensor& out, const Mask& mask,
                             const Tensor& residual) const {
  if (x.rank != 3 || x.size(2) != qkv_.in_features()) {
    fail(ErrorCode::invalid_argument, "FlashAttention: x must be [batch, seq, {}], got {}",
         qkv_.in_features(), to_string(x));
  }
  const std::int64_t batch = x.size(0), seq = x.size(1);
  Workspace::Frame frame(ctx.workspace());

  // [batch, seq, heads + 2 kv_heads, dim]: query, key and value are slices of one product.
  const std::int64_t all_heads = n_heads_ + 2 * kv_heads_;
  const Tensor qkv = frame.take(dtype_, {batch, seq, all_heads, head_dim_});
  qkv_.forward(ctx, x, qkv.view({batch, seq, all_heads * head_dim_}));
  const Tensor q = qkv.slice(2, 0, n_heads_);
  const Tensor k = qkv.slice(2, n_heads_, n_heads_ + kv_heads_);
  const Tensor v = qkv.slice(2, n_heads_ + kv_heads_, all_heads);

  if (inv_freq_.defined()) {
    const Tensor positions = frame.take(DType::i32, {seq});
    std::vector<std::int32_t> rising(static_cast<std::size_t>(seq));
    std::iota(rising.begin(), rising.end(), 0);
    copy_bytes(ctx, positions.data, positions.device, rising.data(), Device::cpu(),
               positions.bytes());
    // Query and key heads are adjacent, so one call rotates both.
    const Tensor q_and_k = qkv.slice(2, 0, n_heads_ + kv_heads_);
    rotary(ctx, {.x = q_and_k,
                 .positions = positions,
                 .rope = {.inv_freq = inv_freq_, .style = rope_style_},
                 .out = q_and_k});
  }

  const Tensor heads = frame.take(dtype_, {batch, seq, n_heads_, head_dim_});
  tessera::attention(ctx, {.q = q, .k = k, .v = v, .out = heads, .mask = mask});
  output_.forward(ctx, heads.view({batch, seq, n_heads_ * head_dim_}), out, residual);
}

}  // namespace tessera
