// linear() and gated_linear() on a GPU: plans a call (choose.h), counts its scratch, runs it.
#include "cuda/linear/linear.h"

#include <algorithm>

#include "core/checked.h"
#include "core/workspace.h"
#include "cuda/linear/call.h"
#include "cuda/linear/choose.h"
#include "cuda/linear/copy_rows.h"
#include "cuda/linear/portable/epilogue_pass.h"
#include "cuda/linear/product.h"

namespace tessera::cuda {
namespace {

// The dtype of products that are made apart. With few tokens they are f32. With many, writing and
// reading them in f32 would take as long as a fifth of the product itself, so they are rounded to
// the output's dtype, as every framework does.
DType dtype_apart(const LinearCall& call, const LinearPlan& plan) {
  const Product& product = call.product;
  const DType dtype = product.out.dtype;
  const auto can_round = [&](const PlannedKernel& planned, const Weight& weight) {
    if (!weight.defined()) return true;
    const bool same = weight.format != Format::dense || weight.data.dtype == dtype;
    return same && planned.kernel != &linear_kernel(KernelId::decode);
  };
  const bool rounds = call.m >= kRoundedTokens && product.x.dtype == dtype &&
                      can_round(plan.product, product.weight) && can_round(plan.up, product.up);
  return rounds ? dtype : DType::f32;
}

// x W^T as [M, N], in the workspace.
Tensor multiply_bare(const LinearCall& call, const PlannedKernel& planned, const Weight& weight,
                     DType dtype, Workspace::Frame& frame) {
  const Tensor out = frame.take(dtype, {call.m, weight.out_features});
  const Product bare = bare_product(call.product.x, weight, out);
  planned.run({call.ctx, bare, call.m});
  return out;
}

const char* run(Context& ctx, const Product& product) {
  const LinearCall call{ctx, product, tokens_of(product.x)};
  const LinearPlan plan = plan_linear(call);
  if (product.out.numel() == 0) return plan.name();
  if (!plan.apart) {
    plan.product.run(call);
    return plan.name();
  }
  Workspace::Frame frame(ctx.workspace());
  const DType dtype = dtype_apart(call, plan);
  const Tensor first = multiply_bare(call, plan.product, product.weight, dtype, frame);
  const Tensor up =
      product.gated() ? multiply_bare(call, plan.up, product.up, dtype, frame) : Tensor();
  run_epilogue(ctx, {.product = first,
                     .up = up,
                     .bias = product.bias,
                     .up_bias = product.up_bias,
                     .activation = product.activation,
                     .residual = product.residual,
                     .out = product.out});
  return plan.name();
}

// The workspace of run() for this many tokens.
std::int64_t scratch_bytes(const LinearCall& call) {
  const LinearPlan plan = plan_linear(call);
  if (!plan.apart) return plan.product.scratch_bytes();
  const DType dtype = dtype_apart(call, plan);
  const std::int64_t product = matrix_bytes(call.m, call.product.weight.out_features, dtype);
  const std::int64_t first = checked_add(product, plan.product.scratch_bytes());
  if (!call.product.gated()) return first;
  const std::int64_t both =
      checked_add(product, matrix_bytes(call.m, call.product.up.out_features, dtype));
  return std::max(first, checked_add(both, plan.up.scratch_bytes()));
}

// With more tokens a kernel takes more; with fewer tokens another kernel may run.
std::int64_t most_scratch_bytes(Context& ctx, const Product& product) {
  const std::int64_t m = tokens_of(product.x);
  std::int64_t most = scratch_bytes({ctx, product, m});
  for (const std::int64_t fewer : tokens_of_other_kernels(product)) {
    if (fewer < m) most = std::max(most, scratch_bytes({ctx, product, fewer}));
  }
  return most;
}

// ---- fixed rows ---------------------------------------------------------------------------------

// LinearArgs::fixed_rows. Kernels, plans and the library's choices depend on the number of tokens
// and on their addresses. So all products have the same number of tokens, in their own memory:
//
//   x   | r0 r1 .. r63 | r64 .. r70 |      the first rows, in groups of kFewGroup
//       '-- group 0 ---'-- group 1, filled up with zeros --'
//
// and likewise the other rows, in groups of kManyGroup. With 64 tokens a product still takes about
// the time of its weights' bytes; with 256, prompts are read in a few groups.
constexpr std::int64_t kFewGroup = 64, kManyGroup = 256;

// The memory of a group's x and out.
struct GroupMemory {
  Tensor x, out;

  GroupMemory(Workspace::Frame& frame, const Product& product, std::int64_t rows)
      : x(frame.take(product.x.dtype, {rows, product.x.size(-1)})),
        out(frame.take(product.out.dtype, {rows, product.out.size(-1)})) {}
};

const char* run_groups(Context& ctx, const Product& product, std::int64_t begin, std::int64_t end,
                       std::int64_t size) {
  Workspace::Frame frame(ctx.workspace());
  const GroupMemory memory(frame, product, size);
  const char* name = "";
  for (std::int64_t first = begin; first < end; first += size) {
    const std::int64_t last = std::min(first + size, end);
    Product group = product;
    group.x = memory.x;
    group.out = memory.out;
    copy_rows(ctx, product.x.slice(0, first, last), memory.x);
    if (product.residual.defined()) {
      group.residual = memory.out;
      copy_rows(ctx, product.residual.slice(0, first, last), memory.out);
    }
    name = run(ctx, group);
    copy_rows(ctx, memory.out.slice(0, 0, last - first), product.out.slice(0, first, last));
  }
  return name;
}

// The kernel of the first rows names the call.
const char* run(Context& ctx, const Product& product, std::int64_t fixed_rows) {
  if (fixed_rows < 0 || product.out.numel() == 0) return run(ctx, product);
  const std::int64_t rows = product.x.size(0);
  const char* many =
      fixed_rows < rows ? run_groups(ctx, product, fixed_rows, rows, kManyGroup) : "";
  return fixed_rows > 0 ? run_groups(ctx, product, 0, fixed_rows, kFewGroup) : many;
}

std::int64_t most_scratch_bytes(Context& ctx, const Product& product, std::int64_t fixed_rows) {
  if (fixed_rows < 0) return most_scratch_bytes(ctx, product);
  std::int64_t most = 0;
  for (const std::int64_t size : {kFewGroup, kManyGroup}) {
    // Planned as if in aligned memory; nothing is read or written.
    Product group = product;
    const auto place = [&](const Tensor& like) {
      return Tensor(reinterpret_cast<void*>(Buffer::kAlignment), like.dtype, {size, like.size(-1)},
                    like.device);
    };
    group.x = place(product.x);
    group.out = place(product.out);
    if (product.residual.defined()) group.residual = group.out;
    const std::int64_t own = checked_add(matrix_bytes(size, group.x.size(-1), group.x.dtype),
                                         matrix_bytes(size, group.out.size(-1), group.out.dtype));
    most = std::max(most, checked_add(own, scratch_bytes({ctx, group, size})));
  }
  return most;
}

}  // namespace

std::int64_t linear_scratch_bytes(Context& ctx, const LinearArgs& args) {
  return most_scratch_bytes(ctx, product_of(args), args.fixed_rows);
}
std::int64_t gated_linear_scratch_bytes(Context& ctx, const GatedLinearArgs& args) {
  return most_scratch_bytes(ctx, product_of(args), args.fixed_rows);
}

const char* linear(Context& ctx, const LinearArgs& args) {
  return run(ctx, product_of(args), args.fixed_rows);
}
const char* gated_linear(Context& ctx, const GatedLinearArgs& args) {
  return run(ctx, product_of(args), args.fixed_rows);
}

}  // namespace tessera::cuda
