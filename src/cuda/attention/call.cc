// From the arguments of attention to the call as its kernels see it.
#include "cuda/attention/call.h"

#include <cmath>
#include <numbers>
#include <span>
#include <type_traits>

#include "core/checked.h"
#include "core/half.h"
#include "core/philox.h"
#include "core/workspace.h"
#include "cuda/attention/attention.h"
#include "cuda/attention/choose.h"
#include "cuda/attention/hopper/hopper.h"
#include "cuda/attention/portable/dense.h"
#include "cuda/attention/portable/tensor_core.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/state.h"

namespace tessera::cuda {
namespace {

// Copies a list from ordinary host memory into scratch, on the stream. CUDA takes such memory into
// a staging buffer before it returns, so the list may go away at once. A graph that captures the
// call captures the list's address, however: it must then outlive the graph.
template <typename T>
const T* upload(Context& ctx, Workspace::Frame& frame, std::span<const T> list, const char* what) {
  T* to = frame.take<T>(std::ssize(list));
  if (list.empty()) return to;
  const DeviceGuard guard(ctx.device());
  check(cudaMemcpyAsync(to, list.data(), list.size_bytes(), cudaMemcpyHostToDevice,
                        static_cast<cudaStream_t>(ctx.stream())),
        what);
  return to;
}

MaskView device_mask(Context& ctx, Workspace::Frame& frame, const Mask& mask) {
  MaskView view = MaskView::of(mask);
  if (mask.kind() == Mask::Kind::blocks) {
    const BlockMask& pattern = mask.pattern();
    const std::byte* lists =
        upload(ctx, frame, pattern.bytes(), "attention: copying the mask's lists");
    view.offsets = reinterpret_cast<const std::int64_t*>(lists);
    view.indices = reinterpret_cast<const std::int32_t*>(view.offsets + pattern.q_blocks() + 1);
    view.longest_first = view.indices + pattern.visited();
  }
  return view;
}

// Calls fn(T(), std::integral_constant<int, dim>) with the head dim that kernels are compiled for.
template <typename F>
void with_tensor_core_types(const AttentionCall& call, F&& fn) {
  const auto with_dim = [&](auto type) {
    if (call.dim <= 64) return fn(type, std::integral_constant<int, 64>());
    if (call.dim <= 80) return fn(type, std::integral_constant<int, 80>());
    if (call.dim <= 96) return fn(type, std::integral_constant<int, 96>());
    if (call.dim <= 128) return fn(type, std::integral_constant<int, 128>());
    return fn(type, std::integral_constant<int, 256>());
  };
  if (call.dtype == DType::f16) return with_dim(Half());
  return with_dim(BFloat16());
}

// The same mask in numbers that are ints: nothing lies farther apart than positions do.
MaskView within_positions(MaskView mask) {
  for (std::int64_t* number : {&mask.left, &mask.right, &mask.n_sink, &mask.block}) {
    *number = std::min<std::int64_t>(*number, kMostPositions);
  }
  return mask;
}

// ---- what the split kernel takes of the workspace
// -----------------------------------------------

struct PartialShape {
  std::int64_t slots = 0, splits = 1, rows_of_slot = 0;

  std::int64_t rows() const { return checked_mul(checked_mul(slots, splits), rows_of_slot); }
};

// For this call or, `or_fewer`, for it and all with fewer queries or keys.
PartialShape partial_shape(const AttentionArgs& args, bool or_fewer) {
  const auto kernels = portable_attention_kernels(args);
  const bool splits_now = kernels[0] == kSplitAttention || kernels[0] == kMixedAttention;
  if (kernels[0] == kPlainAttention || !(splits_now || or_fewer)) return {};
  const AttentionCall call(args, MaskView::of(args.mask));
  const std::int64_t rows = std::min(kFewRows, call.n_q * call.group);
  // A group of more heads than the kernel takes rows never comes to it.
  if (call.group > kFewRows) return {};
  return {.slots = checked_mul(call.sequences, call.kv_heads),
          .splits = split::most_splits(call.n_k, split::split_limit(call.kv_heads)),
          .rows_of_slot = rows};
}

split::Partials take_partials(Context& ctx, Workspace::Frame& frame, const AttentionArgs& args) {
  const PartialShape shape = partial_shape(args, false);
  split::Partials partials{.limit = split::split_limit(args.k.shape[2]),
                           .splits = static_cast<int>(shape.splits),
                           .rows = static_cast<int>(shape.rows_of_slot)};
  if (shape.splits <= 1) return partials;
  partials.sums = frame.take<float>(checked_mul(shape.rows(), args.q.shape[3]));
  partials.largest_and_sum = frame.take<float>(checked_mul(shape.rows(), 2));
  if (shape.rows_of_slot <= split::kMergedRows && shape.slots <= State::kSlotCounters) {
    partials.counters = state_of(ctx).counters() + State::kWorkCounters;
  }
  return partials;
}

const std::int32_t* numbers(const Tensor& tensor) { return tensor.ptr<const std::int32_t>(); }

}  // namespace

AttentionCall::AttentionCall(const AttentionArgs& args, const MaskView& mask_on_device)
    : dtype(args.q.dtype),
      q(args.q),
      k(args.k),
      v(args.v),
      out(args.out),
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

std::int64_t attention_scratch_bytes(const AttentionArgs& args) {
  ScratchSize size;
  if (args.mask.kind() == Mask::Kind::blocks) {
    const BlockMask& pattern = args.mask.pattern();
    size.add<std::byte>(std::ssize(pattern.bytes()));
  }
  if (const PartialShape shape = partial_shape(args, true); shape.splits > 1) {
    size.add<float>(checked_mul(shape.rows(), args.q.shape[3]))
        .add<float>(checked_mul(shape.rows(), 2));
  }
  return size.bytes();
}

const char* attention(Context& ctx, const AttentionArgs& args) {
  const char* kernel = choose(ctx, args);
  Workspace::Frame frame(ctx.workspace());
  AttentionCall call(args, device_mask(ctx, frame, args.mask));
  if (kernel == kPlainAttention) {
    launch_attention(ctx, call);
    return kernel;
  }
  if (kernel == kHopperAttention) {
    launch_hopper(ctx, call);
    return kernel;
  }
  call.mask = within_positions(call.mask);
  if (kernel == kDenseAttention) {
    with_tensor_core_types(
        call, [&](auto type, auto dim) { dense::launch<decltype(type), dim()>(ctx, call); });
    return kernel;
  }
  const TensorCoreOptions options{.units = key_units(args), .leave_few = kernel == kMixedAttention};
  if (kernel != kSplitAttention) {
    with_tensor_core_types(
        call, [&](auto type, auto dim) { mma::launch<decltype(type), dim()>(ctx, call, options); });
  }
  if (kernel != kMmaAttention) {
    const split::Partials partials = take_partials(ctx, frame, args);
    with_tensor_core_types(call, [&](auto type, auto dim) {
      split::launch<decltype(type), dim()>(ctx, call, options, partials);
    });
  }
  return kernel;
}

void attention_backward(Context& ctx, const AttentionBackwardArgs& args) {
  Workspace::Frame frame(ctx.workspace());
  const AttentionCall call(args.forward, device_mask(ctx, frame, args.forward.mask));
  const Tensor& q = args.forward.q;
  const std::int64_t rows = checked_mul(checked_mul(q.shape[0], q.shape[1]), q.shape[2]);
  const AttentionGradients gradients{HeadRows(args.d_out), HeadRows(args.d_q), HeadRows(args.d_k),
                                     HeadRows(args.d_v), frame.take<float>(rows)};
  launch_attention_backward(ctx, call, gradients);
}

}  // namespace tessera::cuda
