// From the arguments of attention to the call as its kernels see it.
#include "cuda/attention/call.h"

#include <cmath>
#include <numbers>

#include "core/philox.h"

namespace tessera::cuda {
namespace {

const std::int32_t* numbers(const Tensor& tensor) { return tensor.ptr<const std::int32_t>(); }

}  // namespace

AttentionCall::AttentionCall(const AttentionArgs& args, const MaskView& mask_on_device)
    : dtype(args.q.dtype),
      stored(args.k.dtype),
      q(args.q),
      k(args.k),
      v(args.v),
      out(args.out),
      k_scales(args.k_scales),
      v_scales(args.v_scales),
      lse(args.lse.ptr<float>()),
      lse_strides{args.lse.strides[0], args.lse.strides[1], args.lse.strides[2]},
      mask(mask_on_device),
      sequences(args.q_offsets.defined() ? args.q_offsets.shape[0] - 1 : args.q.shape[0]),
      n_q(args.q.shape[1]),
      n_k(args.k.shape[1]),
      heads(args.q.shape[2]),
      kv_heads(args.k.shape[2]),
      group(heads / kv_heads),
      dim(static_cast<int>(args.q.shape[3])),
      q_offsets(numbers(args.q_offsets)),
      k_offsets(numbers(args.k_offsets)),
      page_table(numbers(args.pages.table)),
      lengths(numbers(args.pages.lengths)),
      holes(numbers(args.pages.holes)),
      table_stride(args.pages.table.strides[0]),
      hole_stride(args.pages.holes.strides[0]),
      page_size(args.k.shape[1]),
      pool_pages(args.k.shape[0]),
      capped(args.softcap > 0),
      dropping(args.dropout.p > 0),
      kept_factor(static_cast<float>(1.0 / (1.0 - double{args.dropout.p}))),
      dropout_threshold(tessera::dropout_threshold(args.dropout.p)),
      seed(args.dropout.seed),
      inv_freq(args.rope_on_read.inv_freq.ptr<const float>()),
      pairs(args.rope_on_read.inv_freq.shape[0]),
      half_split(args.rope_on_read.style == RopeStyle::half_split) {
  constexpr float kLog2e = std::numbers::log2e_v<float>;
  if (args.pages.defined()) n_k = args.pages.table.shape[1] * page_size;
  scale = args.scale != 0 ? args.scale : 1.0f / std::sqrt(static_cast<float>(dim));
  q_factor = capped ? scale / args.softcap : scale * kLog2e;
  score_factor = args.softcap * kLog2e;
}

}  // namespace tessera::cuda
