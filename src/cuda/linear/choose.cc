#include "cuda/linear/choose.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <string>

#include "core/checked.h"
#include "core/fail.h"
#include "cuda/linear/layout/tile_layout.h"
#include "cuda/linear/portable/plain.h"
#include "cuda/runtime/state.h"

namespace tessera::cuda {
namespace {

// ---- crossover points ---------------------------------------------------------------------------

// Up to this many tokens, cuda.stream is faster than cuda.strips. cuda.strips does not wait for all
// activations before its first product, but starts later. With a shallow weight there is little to
// wait for, and its few bytes arrive faster through a ring (docs/notebook/linear.md).
constexpr std::int64_t kStreamBest = 4, kShallowStreamBest = 1;
constexpr std::int64_t kShallowDepth = 3072;  // holds at 768 and 2560, not at 4096 (measured)

std::int64_t stream_best(const Weight& weight) {
  return weight.in_features <= kShallowDepth ? kShallowStreamBest : kStreamBest;
}
// With dense weights, cuda.stream is faster than the library up to this many tokens; at 8 the
// library is faster.
constexpr std::int64_t kDenseStreamBest = 4;

// By the number of weights in tiles. Measured on an H200 (docs/notebook/linear.md):
//   strips     up to this many tokens, cuda.strips is faster than cuda.panels, though it decodes
//              weights again for every 16 tokens
//   wide       from this many tokens on, cuda.wide is faster than the kernels for fewer
//   library    from this many tokens on, decoding once and multiplying by the library is faster
//              than cuda.panels, where cuda.wide does not pay or does not take the activations
//   after_mma  the same where there is cuda.mma alone
// Decoding takes as long as moving its bytes. cuda.panels has a fixed cost of about 6 us, and costs
// a tenth more per token than the library; cuda.mma costs more than twice as much per token.
struct Crossover {
  std::int64_t weights, strips, wide, library, after_mma;
};
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr Crossover kCrossovers[] = {
    {.weights = 4'000'000, .strips = 128, .wide = kNever, .library = 80, .after_mma = 65},
    {.weights = 5'000'000, .strips = 128, .wide = 600, .library = 1024, .after_mma = 65},
    {.weights = 17'000'000, .strips = 48, .wide = 600, .library = 1024, .after_mma = 65},
    {.weights = 20'000'000, .strips = 16, .wide = 600, .library = 1024, .after_mma = 65},
    {.weights = 40'000'000, .strips = 16, .wide = 450, .library = 512, .after_mma = 65},
    {.weights = 120'000'000, .strips = 16, .wide = 129, .library = 1400, .after_mma = 129},
    {.weights = kNever, .strips = 16, .wide = 129, .library = 1700, .after_mma = 193},
};
// With fewer tokens than this, cuda.wide does not pay if half of its last 256 tokens would be
// empty: cuda.panels has 128 to a block.
constexpr std::int64_t kWideAnyTokens = 1024, kPanelBlockTokens = 128;

const Crossover& crossover(const Weight& weight) {
  const std::int64_t weights = checked_mul(weight.in_features, weight.out_features);
  return *std::find_if(std::begin(kCrossovers), std::end(kCrossovers),
                       [&](const Crossover& at) { return weights <= at.weights; });
}

bool wide_pays(const Weight& weight, std::int64_t m) {
  const bool half_empty = (m - 1) / kPanelBlockTokens % 2 == 0;
  return m >= crossover(weight).wide && (m >= kWideAnyTokens || !half_empty);
}

// From this many tokens on, a model is faster if the library adds a residual, although it decodes
// the weight first: measured for whole prompts (docs/notebook/linear.md).
constexpr std::int64_t kResidualTokens = 512;

bool ends_better_elsewhere(const LinearCall& call) {
  return call.product.residual.defined() && call.m >= kResidualTokens;
}

// ---- the choice ---------------------------------------------------------------------------------

bool takes(KernelId id, const LinearCall& call) { return linear_kernel(id).takes(call); }

PlannedKernel planned(const LinearKernel& kernel, const LinearCall& call) {
  return {.kernel = &kernel, .plan = kernel.plan(call)};
}
PlannedKernel planned(KernelId id, const LinearCall& call) {
  return planned(linear_kernel(id), call);
}

// The kernel that decodes tiles while it multiplies, for more than a few tokens; empty if no such
// kernel takes the call or none pays.
std::optional<KernelId> tile_kernel(const LinearCall& call) {
  if (call.m <= kPlainTokens || ends_better_elsewhere(call)) return {};
  const Product& product = call.product;
  const Crossover& at = crossover(product.weight);
  if (wide_pays(product.weight, call.m) && takes(KernelId::wide, call)) return KernelId::wide;
  if (call.m < at.library && takes(KernelId::panels, call)) return KernelId::panels;
  if (call.m >= at.after_mma || !takes(KernelId::mma, call)) return {};
  return KernelId::mma;
}

// A few strips of long rows would leave multiprocessors idle for long.
bool strips_fill_the_gpu(const LinearCall& call, const KernelPlan& plan) {
  return pairs_of(call.product.weight) <= kShallowPairs ||
         3 * std::get<StripPlan>(plan).blocks >= 2 * state_of(call.ctx).limits().multiprocessors;
}

// The kernel that makes the product and its epilogue, if there is one.
PlannedKernel plan_fused(const LinearCall& call) {
  const Weight& weight = call.product.weight;
  const bool strips_pay = call.m > stream_best(weight) && call.m <= crossover(weight).strips;
  if (strips_pay && takes(KernelId::strips, call)) {
    PlannedKernel strips = planned(KernelId::strips, call);
    if (strips_fill_the_gpu(call, strips.plan)) return strips;
  }
  const std::optional<KernelId> tiles = tile_kernel(call);
  // With few tokens, cuda.panels pays if K is so long that there are too few strips.
  const bool tiles_pay =
      tiles && *tiles != KernelId::mma && !call.product.gated() && pairs_of(weight) > kShallowPairs;
  const bool stream_pays = weight.format != Format::dense || call.m <= kDenseStreamBest;
  if (!tiles_pay && stream_pays && takes(KernelId::stream, call)) {
    return planned(KernelId::stream, call);
  }
  return tiles ? planned(*tiles, call) : PlannedKernel();
}

// The kernel that takes any weight.
KernelId kernel_for_weight(const LinearCall& call) {
  const Weight& weight = call.product.weight;
  if (weight.in_features == 0) return KernelId::decode;  // the library takes no empty sums
  const bool converts = weight.format != Format::dense || weight.data.dtype != call.product.x.dtype;
  return converts && call.m <= kPlainTokens ? KernelId::decode : KernelId::library;
}

PlannedKernel plan_bare(const LinearCall& call) {
  return planned(tile_kernel(call).value_or(kernel_for_weight(call)), call);
}

// Plans each weight of the call by itself. `plan`: a function of a LinearCall.
template <typename Plan>
LinearPlan plan_apart(const LinearCall& call, Plan&& plan) {
  const auto plan_weight = [&](const Weight& weight) {
    const Product bare = bare_product(call.product.x, weight);
    return plan(LinearCall{call.ctx, bare, call.m});
  };
  LinearPlan result{.product = plan_weight(call.product.weight), .apart = true};
  if (call.product.gated()) result.up = plan_weight(call.product.up);
  return result;
}

LinearPlan choose(const LinearCall& call) {
  const PlannedKernel fused = plan_fused(call);
  if (fused.kernel != nullptr) return {.product = fused};
  const bool gated = call.product.gated();
  if (!gated && kernel_for_weight(call) == KernelId::library && takes(KernelId::library, call)) {
    return {.product = planned(KernelId::library, call)};
  }
  return plan_apart(call, plan_bare);
}

// ---- a forced kernel ----------------------------------------------------------------------------

bool takes_apart(const LinearKernel& kernel, const LinearCall& call) {
  const auto takes_weight = [&](const Weight& weight) {
    const Product bare = bare_product(call.product.x, weight);
    return kernel.takes({call.ctx, bare, call.m});
  };
  return takes_weight(call.product.weight) &&
         (!call.product.gated() || takes_weight(call.product.up));
}

[[noreturn]] void refuse(const LinearKernel& kernel, const LinearCall& call) {
  std::string others;
  for (const LinearKernel& other : linear_kernels()) {
    if (!other.takes(call) && !takes_apart(other, call)) continue;
    others += others.empty() ? other.name : std::string(", ") + other.name;
  }
  fail(ErrorCode::invalid_argument, "the kernel {} cannot run this call; these can: {}",
       kernel.name, others);
}

}  // namespace

const char* LinearPlan::name() const {
  return up.kernel == nullptr || up.kernel == product.kernel ? product.kernel->name : "cuda.mixed";
}

LinearPlan plan_linear(const LinearCall& call) {
  const ForcedLinear& forced = state_of(call.ctx).forced_linear();
  if (forced.kernel == nullptr) return choose(call);
  const LinearKernel& kernel = *forced.kernel;
  if (kernel.takes(call)) return {.product = planned(kernel, call)};
  if (takes_apart(kernel, call)) {
    return plan_apart(call, [&](const LinearCall& one) { return planned(kernel, one); });
  }
  if (!forced.where_it_can) refuse(kernel, call);
  return choose(call);
}

std::array<std::int64_t, 18> tokens_of_other_kernels(const Product& product) {
  std::array<std::int64_t, 18> tokens{};
  tokens.fill(kPlainTokens);
  std::size_t count = 1;
  for (const std::int64_t from : {kRoundedTokens, kResidualTokens}) tokens[count++] = from - 1;
  for (const Weight* weight : {&product.weight, &product.up}) {
    if (!weight->defined()) continue;
    const Crossover& at = crossover(*weight);
    for (const std::int64_t from : {at.wide, at.library, at.after_mma}) tokens[count++] = from - 1;
  }
  for (std::int64_t m = kPanelBlockTokens; m <= kWideAnyTokens; m += kPanelBlockTokens) {
    tokens[count++] = m;
  }
  return tokens;
}

void force_linear_kernel(Context& ctx, std::string_view name, Forced forced) {
  state_of(ctx).force_linear({.kernel = name.empty() ? nullptr : &linear_kernel(name),
                              .where_it_can = forced == Forced::where_it_can});
}

std::vector<const char*> linear_kernel_names() {
  std::vector<const char*> names;
  for (const LinearKernel& kernel : linear_kernels()) names.push_back(kernel.name);
  return names;
}

}  // namespace tessera::cuda
