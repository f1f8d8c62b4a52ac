// Bias and penalties on a GPU. A block has a part of one draw's row: it writes the part with the
// draw's penalties, then rewrites the few tokens that have a bias, which is applied before
// penalties.
#include "cuda/sampling/adjust.h"

#include "core/penalty.h"
#include "core/rows.h"
#include "cuda/runtime/launch.h"

namespace tessera::cuda {
namespace {

constexpr int kAdjustThreads = 256;
constexpr std::int64_t kAdjustPart = 2048;

struct AdjustCall {
  Rows logits, penalties, counts, out;
  std::int64_t parts;
  const std::int32_t *rows, *slots;  // slots: or null
  const std::int32_t *bias_begin, *bias_ids;
  const float* bias;
  std::int64_t entries;

  // The draw's counts, or null if it has no penalties.
  __device__ const std::int32_t* counts_of(std::int64_t d) const {
    if (slots == nullptr || slots[d] < 0 || slots[d] >= counts.rows()) return nullptr;
    return counts.row<const std::int32_t>(slots[d]);
  }
};

// A token's logit with its penalties, by its count.
__device__ float with_penalty(float logit, std::int32_t count, const Penalties& p) {
  if (count == 0) return logit;
  return penalised_logit(logit, p.repetition, p.presence, p.frequency, count & ~kInPrompt);
}

__global__ void __launch_bounds__(kAdjustThreads) adjust_parts(AdjustCall call) {
  const std::int64_t n = call.out.cols();
  for (std::int64_t b = blockIdx.x; b < call.out.rows() * call.parts; b += gridDim.x) {
    const std::int64_t d = b / call.parts, begin = b % call.parts * kAdjustPart;
    const std::int64_t end = begin + kAdjustPart < n ? begin + kAdjustPart : n;
    float* const out = call.out.row<float>(d);
    const std::int64_t row = call.rows[d];
    if (row < 0 || row >= call.logits.rows()) {
      for (std::int64_t i = begin + threadIdx.x; i < end; i += kAdjustThreads) out[i] = NAN;
      continue;
    }
    const float* const logits = call.logits.row<const float>(row);
    const std::int32_t* const counts = call.counts_of(d);
    const Penalties penalties = counts ? *call.penalties.row<const Penalties>(d) : Penalties{};
    const auto adjusted = [&](std::int64_t i, float logit) {
      return counts ? with_penalty(logit, counts[i], penalties) : logit;
    };
    for (std::int64_t i = begin + threadIdx.x; i < end; i += kAdjustThreads) {
      out[i] = adjusted(i, logits[i]);
    }
    if (call.bias_begin == nullptr) continue;
    __syncthreads();  // the part is written
    const std::int64_t first = call.bias_begin[d] > 0 ? call.bias_begin[d] : 0;
    const std::int64_t given = call.bias_begin[d + 1];
    const std::int64_t last = given < call.entries ? given : call.entries;
    for (std::int64_t e = first + threadIdx.x; e < last; e += kAdjustThreads) {
      const std::int64_t id = call.bias_ids[e];
      if (id >= begin && id < end) out[id] = adjusted(id, logits[id] + call.bias[e]);
    }
  }
}

__global__ void __launch_bounds__(kAdjustThreads)
    clear_counts(std::int32_t* counts, std::int64_t n) {
  const std::int64_t step = std::int64_t{gridDim.x} * kAdjustThreads;
  for (std::int64_t i = blockIdx.x * std::int64_t{kAdjustThreads} + threadIdx.x; i < n; i += step) {
    counts[i] = 0;
  }
}

__global__ void __launch_bounds__(kAdjustThreads)
    write_counts(std::int32_t* counts, std::int64_t n, const std::int32_t* ids,
                 const std::int32_t* values, std::int64_t size) {
  const std::int64_t step = std::int64_t{gridDim.x} * kAdjustThreads;
  for (std::int64_t i = blockIdx.x * std::int64_t{kAdjustThreads} + threadIdx.x; i < size;
       i += step) {
    const std::int64_t id = ids[i];
    if (id >= 0 && id < n) counts[id] = values ? values[i] : kInPrompt;
  }
}

__global__ void __launch_bounds__(kAdjustThreads)
    add_counts(Rows counts, const std::int32_t* ids, const std::int32_t* slots,
               std::int64_t draws) {
  const std::int64_t step = std::int64_t{gridDim.x} * kAdjustThreads;
  for (std::int64_t d = blockIdx.x * std::int64_t{kAdjustThreads} + threadIdx.x; d < draws;
       d += step) {
    const std::int64_t id = ids[d], slot = slots[d];
    if (id < 0 || id >= counts.cols() || slot < 0 || slot >= counts.rows()) continue;
    atomicAdd(counts.row<std::int32_t>(slot) + id, 1);
  }
}

const std::int32_t* i32_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.ptr<const std::int32_t>() : nullptr;
}

Grid grid_over(std::int64_t items) {
  return {.blocks = (items + kAdjustThreads - 1) / kAdjustThreads, .threads = kAdjustThreads};
}

}  // namespace

void adjust_logits(Context& ctx, const AdjustLogitsArgs& args) {
  if (args.out.numel() == 0) return;
  const bool with_bias = args.bias_begin.defined();
  const AdjustCall call{
      .logits = Rows(args.logits),
      .penalties = Rows(args.penalties),
      .counts = Rows(args.counts),
      .out = Rows(args.out),
      .parts = (args.out.size(-1) + kAdjustPart - 1) / kAdjustPart,
      .rows = args.rows.ptr<const std::int32_t>(),
      .slots = i32_or_null(args.slots),
      .bias_begin = i32_or_null(args.bias_begin),
      .bias_ids = i32_or_null(args.bias_ids),
      .bias = with_bias ? args.bias.ptr<const float>() : nullptr,
      .entries = with_bias ? args.bias.numel() : 0,
  };
  const Launch launch(ctx, "adjust_logits");
  launch(adjust_parts, {.blocks = call.out.rows() * call.parts, .threads = kAdjustThreads}, call);
}

void fill_counts(Context& ctx, const FillCountsArgs& args) {
  const std::int64_t n = args.counts.size(-1);
  if (n == 0) return;
  std::int32_t* const counts = Rows(args.counts).row<std::int32_t>(args.slot);
  const Launch launch(ctx, "fill_counts");
  launch(clear_counts, grid_over(n), counts, n);
  const std::int64_t size = args.ids.defined() ? args.ids.numel() : 0;
  if (size == 0) return;
  launch(write_counts, grid_over(size), counts, n, args.ids.ptr<const std::int32_t>(),
         i32_or_null(args.values), size);
}

void count_tokens(Context& ctx, const CountTokensArgs& args) {
  const std::int64_t draws = args.ids.numel();
  if (draws == 0) return;
  const Launch launch(ctx, "count_tokens");
  launch(add_counts, grid_over(draws), Rows(args.counts), args.ids.ptr<const std::int32_t>(),
         args.slots.ptr<const std::int32_t>(), draws);
}

}  // namespace tessera::cuda
