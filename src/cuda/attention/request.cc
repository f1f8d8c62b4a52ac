// The facts that decide a call's kernel: how the portable tensor core kernels can count its rows.
#include <algorithm>
#include <cstdint>

#include "cuda/attention/kernel.h"
#include "cuda/tile/vectors.h"

namespace tessera::cuda {
namespace {

constexpr std::int64_t kVectorBytes = 16;

// Whether positions, and the number of blocks, fit ints.
bool counts_in_ints(const AttentionCall& call) {
  if (call.n_q > kMostPositions / call.group || call.n_k > kMostPositions) return false;
  const std::int64_t sequences = call.sequences + (call.q_offsets != nullptr ? 1 : 0);
  const std::int64_t blocks = call.n_q * call.group / 64 + split::kMostSplits;  // of a head
  return sequences <= INT32_MAX / blocks / call.kv_heads;
}

std::int64_t vector_size(const Tensor& tensor) { return kVectorBytes / size_of(tensor.dtype); }

// Whether all rows of q, k, v and out are aligned to 16 bytes and made of whole 16-byte chunks.
bool made_of_vectors(const AttentionArgs& args) {
  const Tensor* tensors[] = {&args.q, &args.k, &args.v, &args.out};
  return std::all_of(std::begin(tensors), std::end(tensors), [](const Tensor* tensor) {
    return rows_begin_on_vectors(*tensor) && tensor->size(-1) % vector_size(*tensor) == 0;
  });
}

// A stride in units. The stride of a dimension of size 1 may be anything.
std::uint32_t in_units(const Tensor& tensor, int d, std::int64_t unit) {
  return tensor.shape[d] > 1 ? static_cast<std::uint32_t>(tensor.strides[d] / unit) : 0u;
}

KeyUnits key_units(const AttentionArgs& args) {
  const bool vectors = made_of_vectors(args);
  const std::int64_t unit = vectors ? vector_size(args.k) : 1;
  return {.vectors = vectors,
          .k_batch = in_units(args.k, 0, unit),
          .k_row = in_units(args.k, 1, unit),
          .v_batch = in_units(args.v, 0, unit),
          .v_row = in_units(args.v, 1, unit),
          .page_size = static_cast<std::uint32_t>(args.k.shape[1])};
}

// Whether every row of a head lies less than 2^32 - 3 units after its first.
bool counts_in_units(const Tensor& tensor, std::int64_t unit) {
  std::int64_t last = 0;
  for (int d = 0; d < 2; ++d) {
    if (tensor.shape[d] <= 1) continue;
    if (tensor.strides[d] < 0) return false;
    last += (tensor.shape[d] - 1) * tensor.strides[d];
  }
  return last / unit < 0xfffffffd;
}

}  // namespace

AttentionRequest::AttentionRequest(const DeviceLimits& on, const AttentionArgs& args)
    : gpu(on),
      call(args, MaskView::of(args.mask)),
      units(key_units(args)),
      fixed_splits(args.fixed_splits) {
  const std::int64_t unit = units.vectors ? vector_size(args.k) : 1;
  tensor_cores = call.dtype != DType::f32 && counts_in_ints(call) &&
                 counts_in_units(args.k, unit) && counts_in_units(args.v, unit);
}

}  // namespace tessera::cuda
