// The table of linear kernels. A kernel is chosen once and planned once (choose.h); its scratch is
// counted from the plan that runs.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

#include "cuda/linear/call.h"
#include "cuda/linear/hopper/panels.h"
#include "cuda/linear/hopper/strips.h"
#include "cuda/linear/hopper/wide.h"
#include "cuda/linear/library.h"
#include "cuda/linear/portable/mma.h"
#include "cuda/linear/portable/stream.h"

namespace tessera::cuda {

using KernelPlan = std::variant<std::monostate, StreamPlan, StripPlan, PanelPlan, WidePlan,
                                MmaLaunch, LibraryPlan, DecodePlan>;

struct LinearKernel {
  const char* name;
  // Whether the kernel can run the call, with its epilogue, fastest or not.
  bool (*takes)(const LinearCall& call);
  KernelPlan (*plan)(const LinearCall& call);  // for a call that it takes
  // The plan's bytes of the workspace. No plan for fewer tokens takes more.
  std::int64_t (*scratch)(const KernelPlan& plan);
  // Takes scratch() bytes of the workspace while it runs.
  void (*run)(const LinearCall& call, const KernelPlan& plan);
};

// cuda.stream         a few tokens of f16 or bf16, on any GPU (portable/stream.cuh)
// cuda.strips         the same on Hopper, up to 128 tokens (hopper/strips.cuh)
// cuda.panels         dozens to hundreds of tokens on Hopper: decodes in registers (panels.cuh)
// cuda.wide           hundreds to thousands on Hopper: decodes into shared memory (wide.cuh)
// cuda.mma            dozens of tokens on any GPU since Ampere (portable/mma.cuh)
// cuda.cublaslt       any weight, decoded once if it is packed (library.h)
// cuda.plain.decode   any weight and any dtype, a few tokens (library.h)
enum class KernelId : std::uint8_t { stream, strips, panels, wide, mma, library, decode };

std::span<const LinearKernel> linear_kernels();
const LinearKernel& linear_kernel(KernelId id);
// Throws Error (invalid_argument), which lists the names, if there is none of this name.
const LinearKernel& linear_kernel(std::string_view name);

}  // namespace tessera::cuda
