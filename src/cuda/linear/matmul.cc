// cuBLASLt counts matrices by columns. Read that way, row-major memory is the transpose, and
//
//   out^T [N, M] = weight^T transposed [N, K] * x^T [K, M]
//
// is the product we want, with no copy: operand A is the weight, operand B is x.
#include "cuda/linear/matmul.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "core/format.h"
#include "core/workspace.h"
#include "cuda/runtime/errors.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/state.h"

namespace tessera::cuda {
namespace {

// The most scratch memory that an algorithm may use; NVIDIA's advice for Hopper.
constexpr std::uint64_t kMaxWorkspace = 32 << 20;
// The alignment that cuBLASLt requires of its scratch memory.
constexpr std::int64_t kAlignment = 256;

void check_cublas(cublasStatus_t status, const char* attempt) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  check_not_lost(fmt::format("cuBLASLt: {}", attempt));
  fail(ErrorCode::device, "cuBLASLt: {} failed: {}", attempt, cublasLtGetStatusString(status));
}

// ---- cuBLASLt's objects -------------------------------------------------------------------------

// Descriptions of a product. They live on the stack: only the first product of a shape allocates.
using Operation = cublasLtMatmulDescOpaque_t;
using Layout = cublasLtMatrixLayoutOpaque_t;
using Preference = cublasLtMatmulPreferenceOpaque_t;

// How a product is made: the library's answer.
struct Choice {
  cublasLtMatmulAlgo_t algo{};
  std::size_t workspace = 0;
};

// The inputs of an answer: sizes, strides, dtypes, alignments and addends.
struct ProductShape {
  std::array<std::int64_t, 11> numbers{};

  bool operator==(const ProductShape&) const = default;
};
struct HashShape {
  std::size_t operator()(const ProductShape& shape) const {
    std::uint64_t hash = 14695981039346656037u;  // FNV-1a, by words
    for (const std::int64_t number : shape.numbers) {
      hash = (hash ^ static_cast<std::uint64_t>(number)) * 1099511628211u;
    }
    return static_cast<std::size_t>(hash ^ hash >> 32);
  }
};

// The Context's, made at its first product.
struct Library {
  cublasLtHandle_t handle = nullptr;
  std::unordered_map<ProductShape, Choice, HashShape> choices;

  Library() { check_cublas(cublasLtCreate(&handle), "starting"); }
  ~Library() { cublasLtDestroy(handle); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
};

Library& library_of(Context& ctx) {
  std::shared_ptr<void>& kept = state_of(ctx).cublas_handle();
  if (!kept) kept = std::make_shared<Library>();
  return *static_cast<Library*>(kept.get());
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

// The matrix's alignment: a power of two, at most Buffer::kAlignment. All scratch has that
// alignment, so the same product elsewhere in the workspace needs no new answer.
std::uint32_t alignment_of(const Tensor& matrix) {
  const auto address = reinterpret_cast<std::uintptr_t>(matrix.data) | Buffer::kAlignment;
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
  // Parts of a sum that is split over blocks are added in f32, not in the output's dtype.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  return preference;
}

// ---- the choice ---------------------------------------------------------------------------------

// The factors, the addend (the output itself if there is none) and the output of a product.
struct Operands {
  Tensor weight, x, added, out;
  Tensor bias;
  bool adds;

  // The same for another number of tokens, in the same memory. Only for descriptions.
  Operands with_tokens(std::int64_t m) const {
    Operands other = *this;
    for (Tensor* matrix : {&other.x, &other.added, &other.out}) matrix->shape[0] = m;
    return other;
  }
  ProductShape shape() const {
    std::int64_t alignments = 0;
    for (const Tensor* matrix : {&weight, &x, &added, &out}) {
      alignments = alignments << 16 | alignment_of(*matrix);
    }
    return {{x.shape[0], weight.shape[0], weight.shape[1], static_cast<std::int64_t>(x.dtype),
             static_cast<std::int64_t>(out.dtype), weight.strides[0], x.strides[0],
             added.strides[0], out.strides[0], alignments,
             (bias.defined() ? 1 : 0) + (adds ? 2 : 0)}};
  }
};

struct Descriptions {
  Operation operation;
  Layout a, b, c, d;

  explicit Descriptions(const Operands& operands)
      : operation(make_operation(operands.bias)),
        a(make_layout(operands.weight)),
        b(make_layout(operands.x)),
        c(make_layout(operands.added)),
        d(make_layout(operands.out)) {}
};

// The number of tokens that stands in for m in a query to the library. An answer takes a good part
// of a millisecond, and loading its kernel takes some more. Steps with prompts have any number of
// tokens: two answers serve all numbers between two powers of two, and one answer serves small
// numbers.
std::int64_t asked_tokens(std::int64_t m) {
  constexpr std::int64_t kFew = 16;
  const auto power = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(m)));
  if (m <= kFew) return power;
  return m <= power / 4 * 3 ? power / 4 * 3 : power;
}

Choice ask(cublasLtHandle_t handle, const Operands& operands) {
  Descriptions described(operands);
  Preference preference =
      make_preference(operands.weight, operands.x, operands.added, operands.out);
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle, &described.operation, &described.a, &described.b,
                                     &described.c, &described.d, &preference, 1, &best, &found);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0) {
    check_not_lost("cuBLASLt: choosing an algorithm");
    fail(ErrorCode::device, "cuBLASLt has no algorithm for {} times {} transposed into {}: {}",
         operands.x, operands.weight, operands.out, cublasLtGetStatusString(status));
  }
  return {best.algo, best.workspaceSize};
}

// The answer for this exact number of tokens if one was needed, else the answer for its range.
const Choice& choice_for(Library& library, const Operands& operands) {
  const auto own = library.choices.find(operands.shape());
  if (own != library.choices.end()) return own->second;
  const Operands asked = operands.with_tokens(asked_tokens(operands.x.shape[0]));
  const ProductShape shape = asked.shape();
  const auto found = library.choices.find(shape);
  if (found != library.choices.end()) return found->second;
  return library.choices.emplace(shape, ask(library.handle, asked)).first->second;
}

cublasStatus_t multiply(Context& ctx, cublasLtHandle_t handle, const Operands& operands,
                        const Choice& choice) {
  Descriptions described(operands);
  Workspace::Frame frame(ctx.workspace());
  const auto scratch_bytes = static_cast<std::int64_t>(choice.workspace);
  auto scratch =
      reinterpret_cast<std::uintptr_t>(frame.take<char>(checked_add(scratch_bytes, kAlignment)));
  scratch = (scratch + kAlignment - 1) / kAlignment * kAlignment;
  const float one = 1.f, share_of_added = operands.adds ? 1.f : 0.f;
  return cublasLtMatmul(handle, &described.operation, &one, operands.weight.data, &described.a,
                        operands.x.data, &described.b, &share_of_added, operands.added.data,
                        &described.c, operands.out.data, &described.d, &choice.algo,
                        reinterpret_cast<void*>(scratch), choice.workspace,
                        static_cast<cudaStream_t>(ctx.stream()));
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
  Library& library = library_of(ctx);
  const bool adds = addends.residual.defined();
  const Operands operands{.weight = weight,
                          .x = x,
                          .added = adds ? addends.residual : out,
                          .out = out,
                          .bias = addends.bias,
                          .adds = adds};
  cublasStatus_t status = multiply(ctx, library.handle, operands, choice_for(library, operands));
  // An algorithm may not take the exact number of tokens. Then the library is queried for that
  // number, once.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
    Choice& own = library.choices[operands.shape()];
    own = ask(library.handle, operands);
    status = multiply(ctx, library.handle, operands, own);
  }
  check_cublas(status, "multiplying");
}

}  // namespace tessera::cuda
