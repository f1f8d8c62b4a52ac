// The table of attention kernels, and which of them runs a call.
#include "cuda/attention/choose.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

#include "core/fail.h"
#include "cuda/attention/hopper/decode/decode.h"
#include "cuda/attention/hopper/hopper.h"
#include "cuda/attention/hopper_and_split.h"
#include "cuda/attention/kernel.h"
#include "cuda/attention/plain/plain.h"
#include "cuda/attention/portable/dense.h"
#include "cuda/attention/portable/split_and_mma.h"

namespace tessera::cuda {
namespace {

std::int64_t no_scratch(const AttentionPlan&) { return 0; }

// The first kernel that takes a call runs it. The last one takes every call.
constexpr AttentionKernel kKernels[] = {
    {.name = "cuda.split.run",  // up to 16 queries, of more rows than cuda.split takes
     .takes = split::takes_run,
     .pays = split::run_pays,
     .plan = split::plan_run,
     .scratch = split::scratch,
     .run = split::run_few},
    {.name = "cuda.hopper",  // prefill on compute capability 9.0
     .takes = hopper_takes,
     .pays = hopper_pays,
     .plan = plan_hopper,
     .scratch = no_scratch,
     .run = run_hopper},
    {.name = "cuda.hopper+split",  // a ragged batch on compute capability 9.0
     .takes = takes_hopper_and_split,
     .pays = nullptr,
     .plan = plan_hopper_and_split,
     .scratch = split::scratch,
     .run = run_hopper_and_split},
    {.name = "cuda.hopper.decode",  // few rows over many keys on compute capability 9.0
     .takes = hopper_decode::takes,
     .pays = hopper_decode::pays,
     .plan = hopper_decode::plan,
     .scratch = hopper_decode::scratch,
     .run = hopper_decode::run},
    {.name = "cuda.split.codes",  // cuda.split for 8-bit keys and values
     .takes = split::takes_codes,
     .pays = nullptr,
     .plan = split::plan_codes,
     .scratch = split::scratch,
     .run = split::run},
    {.name = "cuda.split.rotated",  // cuda.split for keys that are rotated as they are read
     .takes = split::takes_rotated,
     .pays = nullptr,
     .plan = split::plan,
     .scratch = split::scratch,
     .run = split::run_rotated},
    {.name = "cuda.split",  // few rows: the keys are split so that there is enough work
     .takes = split::takes,
     .pays = nullptr,
     .plan = split::plan,
     .scratch = split::scratch,
     .run = split::run},
    {.name = "cuda.mma+split",  // a ragged batch: each sequence by the one that suits it
     .takes = split::takes_mixed,
     .pays = nullptr,
     .plan = split::plan_mixed,
     .scratch = split::scratch,
     .run = split::run_mixed},
    {.name = "cuda.dense",  // dense batches under a full, causal or window mask
     .takes = dense::takes,
     .pays = nullptr,
     .plan = dense::plan,
     .scratch = no_scratch,
     .run = dense::run},
    {.name = "cuda.mma",  // f16 and bf16 by tensor cores, any mask and layout
     .takes = mma::takes,
     .pays = nullptr,
     .plan = mma::plan,
     .scratch = no_scratch,
     .run = mma::run},
    {.name = "cuda.plain",  // any call: f32, and sequences longer than the others can count
     .takes = plain::takes,
     .pays = nullptr,
     .plan = plain::plan,
     .scratch = no_scratch,
     .run = plain::run},
};

bool is_chosen_for(const AttentionKernel& kernel, const AttentionRequest& request) {
  return (kernel.pays == nullptr || kernel.pays(request)) && kernel.takes(request);
}

AttentionPlan plan_with(const AttentionKernel& kernel, const AttentionRequest& request) {
  AttentionPlan plan = kernel.plan(request);
  plan.kernel = &kernel;
  return plan;
}

AttentionPlan choose(const AttentionRequest& request) {
  const auto* chosen = std::find_if(std::begin(kKernels), std::end(kKernels) - 1,
                                    [&](auto& kernel) { return is_chosen_for(kernel, request); });
  return plan_with(*chosen, request);
}

// The kernels that can run a call, the chosen one first.
std::vector<const char*> names_for(const AttentionRequest& request) {
  std::vector<const char*> chosen, possible;
  for (const AttentionKernel& kernel : kKernels) {
    if (is_chosen_for(kernel, request)) {
      chosen.push_back(kernel.name);
    } else if (kernel.takes(request)) {
      possible.push_back(kernel.name);
    }
  }
  chosen.insert(chosen.end(), possible.begin(), possible.end());
  return chosen;
}

}  // namespace

std::span<const AttentionKernel> attention_kernel_table() { return kKernels; }

AttentionPlan plan_attention(const DeviceLimits& gpu, const AttentionArgs& args) {
  return choose(AttentionRequest(gpu, args));
}

AttentionPlan plan_attention(Context& ctx, const AttentionArgs& args) {
  const AttentionRequest request(state_of(ctx).limits(), args);
  const AttentionKernel* forced = state_of(ctx).forced_attention();
  if (forced == nullptr) return choose(request);
  if (!forced->takes(request)) {
    fail(ErrorCode::invalid_argument, "the kernel {} cannot run this call; {} can", forced->name,
         fmt::join(names_for(request), ", "));
  }
  return plan_with(*forced, request);
}

void force_attention_kernel(Context& ctx, std::string_view name) {
  if (name.empty()) return state_of(ctx).force_attention(nullptr);
  const auto* found =
      std::find_if(std::begin(kKernels), std::end(kKernels),
                   [&](const AttentionKernel& kernel) { return kernel.name == name; });
  if (found == std::end(kKernels)) {
    std::vector<const char*> names;
    for (const AttentionKernel& kernel : kKernels) names.push_back(kernel.name);
    fail(ErrorCode::invalid_argument, "there is no attention kernel {}; there are {}", name,
         fmt::join(names, ", "));
  }
  state_of(ctx).force_attention(found);
}

bool is_attention_kernel_forced(Context& ctx) {
  return state_of(ctx).forced_attention() != nullptr;
}

std::vector<const char*> attention_kernels(Context& ctx, const AttentionArgs& args) {
  return names_for(AttentionRequest(state_of(ctx).limits(), args));
}

std::vector<const char*> portable_attention_kernels(const AttentionArgs& args) {
  return names_for(AttentionRequest(DeviceLimits{}, args));
}

}  // namespace tessera::cuda
