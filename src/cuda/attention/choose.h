// Which kernel runs an attention call.
#pragma once

#include <vector>

#include "cuda/attention/portable/tensor_core.h"
#include "tessera/attention.h"
#include "tessera/context.h"

namespace tessera::cuda {

// Arrays, not pointers: each has one address in the whole program, by which kernels are compared.
// attention.cu: any call. For f32, and for sequences longer than the others count.
inline constexpr char kPlainAttention[] = "cuda.plain";
// attention/mma.cuh: f16 and bf16 by tensor cores.
inline constexpr char kMmaAttention[] = "cuda.mma";
// attention/dense.cuh: those of them that are dense and have a band for a mask.
inline constexpr char kDenseAttention[] = "cuda.dense";
// attention/split.cuh: the same where all sequences have few query rows, so that the keys have to
// be split for there to be enough work.
inline constexpr char kSplitAttention[] = "cuda.split";
// A ragged batch: each sequence by the one of the two that suits it.
inline constexpr char kMixedAttention[] = "cuda.mma+split";
// attention/hopper.cuh: dense f16 and bf16, patterns of blocks of 128 x 128 among them, by what
// tensor cores and copy engine of compute capability 9.0 have.
inline constexpr char kHopperAttention[] = "cuda.hopper";

// The kernels that can run this call on the Context's GPU, the one that is chosen first.
std::vector<const char*> attention_kernels(Context& ctx, const AttentionArgs& args);
// The same of those that run on every GPU.
std::vector<const char*> portable_attention_kernels(const AttentionArgs& args);

// The one that runs it: the first, unless the Context is to use another. Throws where that cannot
// run it.
const char* choose(Context& ctx, const AttentionArgs& args);
// For tests: the kernel that a Context uses from here on; "": its own choice again.
void force_attention_kernel(Context& ctx, const char* kernel);
bool is_attention_kernel_forced(Context& ctx);

// How the tensor core kernels count the rows of k and v.
KeyUnits key_units(const AttentionArgs& args);

}  // namespace tessera::cuda
