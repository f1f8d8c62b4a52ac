// cuBLASLt counts matrices by columns. Read that way, row-major memory is the transpose, and
//
//   out^T [N, M] = weight^T transposed [N, K] * x^T [K, M]
//
// is the product we want, with no copy: operand A is the weight, operand B is x.
#include "cuda/linear/matmul.h"

#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>

#include "core/format.h"
#include "core/workspace.h"
#include "cuda/runtime/errors.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/state.h"

namespace tessera::cuda {
namespace {

// The most scratch memory an algorithm may ask for; NVIDIA's advice for Hopper.
constexpr std::uint64_t kMaxWorkspace = 32 << 20;
// What cuBLASLt asks of its scratch memory, and the best alignment it knows of a matrix.
constexpr std::int64_t kAlignment = 256;

void check_cublas(cublasStatus_t status, const char* attempt) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  check_not_lost(fmt::format("cuBLASLt: {}", attempt));
  fail(ErrorCode::device, "cuBLASLt: {} failed: {}", attempt, cublasLtGetStatusString(status));
}

// ---- cuBLASLt's objects -------------------------------------------------------------------------

// Descriptions of a product. They live on the stack: a product allocates nothing on the heap.
using Operation = cublasLtMatmulDescOpaque_t;
using Layout = cublasLtMatrixLayoutOpaque_t;
using Preference = cublasLtMatmulPreferenceOpaque_t;

// The Context's handle, made at its first product.
cublasLtHandle_t handle_of(Context& ctx) {
  std::shared_ptr<void>& kept = state_of(ctx).cublas_handle();
  if (!kept) {
    cublasLtHandle_t handle = nullptr;
    check_cublas(cublasLtCreate(&handle), "starting");
    kept = std::shared_ptr<void>(
        handle, [](void* made) { cublasLtDestroy(static_cast<cublasLtHandle_t>(made)); });
  }
  return static_cast<cublasLtHandle_t>(kept.get());
}

cudaDataType_t type_of(DType dtype) {
  return dtype == DType::f16 ? CUDA_R_16F : dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

template <typename T>
void set(Operation& operation, cublasLtMatmulDescAttributes_t attribute, T value) {
  check_cublas(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof(value)),
               "describing a product");
}

Operation make_operation(const Tensor& bias) {
  Operation operation{};
  check_cublas(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "describing a product");
  set(operation, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  if (bias.defined()) {
    set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias.data));
  }
  return operation;
}

Layout make_layout(const Tensor& matrix) {
  Layout layout{};
  check_cublas(cublasLtMatrixLayoutInit(
                   &layout, type_of(matrix.dtype), static_cast<std::uint64_t>(matrix.shape[1]),
                   static_cast<std::uint64_t>(matrix.shape[0]), matrix.strides[0]),
               "describing a matrix");
  return layout;
}

template <typename T>
void set(Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  check_cublas(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)),
               "stating a preference");
}

// The largest power of two up to kAlignment that the matrix starts on a multiple of.
std::uint32_t alignment_of(const Tensor& matrix) {
  const auto address = reinterpret_cast<std::uintptr_t>(matrix.data) | kAlignment;
  return std::uint32_t{1} << std::countr_zero(address);
}

Preference make_preference(const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& d) {
  Preference preference{};
  check_cublas(cublasLtMatmulPreferenceInit(&preference), "stating a preference");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMaxWorkspace);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(a));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(b));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(c));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(d));
  // Parts of a sum that is split over blocks meet in f32, not in the output's dtype.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  return preference;
}

}  // namespace

std::int64_t matmul_scratch_bytes() {
  return ScratchSize().add<char>(std::int64_t{kMaxWorkspace} + kAlignment).bytes();
}

bool matmul_adds(const Tensor& out, const Addends& addends) {
  if (!addends.bias.defined() && !addends.residual.defined()) return true;
  const auto fits = [&](const Tensor& tensor) {
    if (!tensor.defined()) return true;
    const std::int64_t per_boundary = 16 / size_of(tensor.dtype);
    const auto whole = [&](std::int64_t count) { return count % per_boundary == 0; };
    return tensor.dtype == out.dtype && reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0 &&
           whole(tensor.size(-1)) && (tensor.rank < 2 || whole(tensor.strides[tensor.rank - 2])) &&
           tensor.strides[tensor.rank - 1] == 1;
  };
  return fits(out) && fits(addends.bias) && fits(addends.residual);
}

void matmul(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& out,
            const Addends& addends) {
  const DeviceGuard guard(ctx.device());
  const cublasLtHandle_t handle = handle_of(ctx);
  Operation operation = make_operation(addends.bias);
  const bool adds = addends.residual.defined();
  const Tensor& added = adds ? addends.residual : out;
  Layout a = make_layout(weight), b = make_layout(x), c = make_layout(added), d = make_layout(out);
  Preference preference = make_preference(weight, x, added, out);

  // The library remembers its answers: only the first product of a shape pays for the search.
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, &operation, &a, &b, &c, &d,
                                                               &preference, 1, &best, &found);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0) {
    check_not_lost("cuBLASLt: choosing an algorithm");
    fail(ErrorCode::device, "cuBLASLt has no algorithm for {} times {} transposed into {}: {}", x,
         weight, out, cublasLtGetStatusString(status));
  }

  Workspace::Frame frame(ctx.workspace());
  const auto scratch_bytes = static_cast<std::int64_t>(best.workspaceSize);
  auto scratch =
      reinterpret_cast<std::uintptr_t>(frame.take<char>(checked_add(scratch_bytes, kAlignment)));
  scratch = (scratch + kAlignment - 1) / kAlignment * kAlignment;

  const float one = 1.f, share_of_added = adds ? 1.f : 0.f;
  check_cublas(
      cublasLtMatmul(handle, &operation, &one, weight.data, &a, x.data, &b, &share_of_added,
                     added.data, &c, out.data, &d, &best.algo, reinterpret_cast<void*>(scratch),
                     best.workspaceSize, static_cast<cudaStream_t>(ctx.stream())),
      "multiplying");
}

}  // namespace tessera::cuda
