#include "cuda/linear/kernels.h"

#include <string>

#include "core/fail.h"
#include "core/workspace.h"

namespace tessera::cuda {
namespace {

template <typename Plan>
using Run = void(const LinearCall&, const Plan&);
template <typename Plan>
using RunWithScratch = void(const LinearCall&, const Plan&, void* scratch);

// A kernel that takes its own scratch, or none.
template <typename Plan, bool (*kTakes)(const LinearCall&), Plan (*kPlan)(const LinearCall&),
          Run<Plan>* kRun>
constexpr LinearKernel kernel(const char* name) {
  return {.name = name,
          .takes = kTakes,
          .plan = [](const LinearCall& call) { return KernelPlan(kPlan(call)); },
          .scratch =
              [](const KernelPlan& plan) {
                if constexpr (requires(Plan one) { one.scratch_bytes; }) {
                  return std::get<Plan>(plan).scratch_bytes;
                } else {
                  return std::int64_t{0};
                }
              },
          .run = [](const LinearCall& call,
                    const KernelPlan& plan) { kRun(call, std::get<Plan>(plan)); }};
}

// A kernel whose plan gives its scratch, in one piece.
template <typename Plan, bool (*kTakes)(const LinearCall&), Plan (*kPlan)(const LinearCall&),
          RunWithScratch<Plan>* kRun>
constexpr LinearKernel kernel_with_scratch(const char* name) {
  return {.name = name,
          .takes = kTakes,
          .plan = [](const LinearCall& call) { return KernelPlan(kPlan(call)); },
          .scratch =
              [](const KernelPlan& plan) {
                return ScratchSize().add<char>(std::get<Plan>(plan).scratch_bytes).bytes();
              },
          .run =
              [](const LinearCall& call, const KernelPlan& plan) {
                const Plan& one = std::get<Plan>(plan);
                Workspace::Frame frame(call.ctx.workspace());
                kRun(call, one, frame.take<char>(one.scratch_bytes));
              }};
}

// In the order of KernelId.
constexpr LinearKernel kKernels[] = {
    kernel<StreamPlan, takes_stream, plan_stream, run_stream>("cuda.stream"),
    kernel<StripPlan, takes_strips, plan_strips, run_strips>("cuda.strips"),
    kernel_with_scratch<PanelPlan, takes_panels, plan_panels, run_panels>("cuda.panels"),
    kernel_with_scratch<WidePlan, takes_wide, plan_wide, run_wide>("cuda.wide"),
    kernel_with_scratch<MmaLaunch, takes_mma, plan_mma, run_mma>("cuda.mma"),
    kernel<LibraryPlan, takes_library, plan_library, run_library>("cuda.cublaslt"),
    kernel<DecodePlan, takes_decode, plan_decode, run_decode>("cuda.plain.decode"),
};

}  // namespace

std::span<const LinearKernel> linear_kernels() { return kKernels; }

const LinearKernel& linear_kernel(KernelId id) { return kKernels[static_cast<std::size_t>(id)]; }

const LinearKernel& linear_kernel(std::string_view name) {
  std::string names;
  for (const LinearKernel& kernel : kKernels) {
    if (name == kernel.name) return kernel;
    names += names.empty() ? kernel.name : std::string(", ") + kernel.name;
  }
  fail(ErrorCode::invalid_argument, "there is no linear kernel {}; there are {}", name, names);
}

}  // namespace tessera::cuda
