#include "parallel/check.h"

#include <algorithm>

#include "core/fail.h"

namespace tessera::parallel {

void check_contiguous(const char* call, const Tensor& tensor) {
  if (tensor.defined() && tensor.is_contiguous()) return;
  fail(ErrorCode::invalid_argument, "{}: a message must be a contiguous tensor, got {}", call,
       tensor);
}

void check_summable(const char* call, const Tensor& tensor) {
  check_contiguous(call, tensor);
  if (tensor.dtype == DType::f32 || tensor.dtype == DType::f16 || tensor.dtype == DType::bf16) {
    return;
  }
  fail(ErrorCode::invalid_argument, "{}: sums are of f32, f16 or bf16, got {}", call, tensor);
}

void check_whole(const char* call, const Tensor& part, const Tensor& whole, int size) {
  check_contiguous(call, part);
  check_contiguous(call, whole);
  const bool fits =
      whole.dtype == part.dtype && whole.rank == part.rank + 1 && whole.shape[0] == size &&
      std::equal(part.shape.begin(), part.shape.begin() + part.rank, whole.shape.begin() + 1);
  if (fits) return;
  fail(ErrorCode::invalid_argument,
       "{}: the part is {}, so the whole must have its shape after the number of ranks, {}; got {}",
       call, part, size, whole);
}

void check_peer(const char* call, int peer, int size) {
  if (peer >= 0 && peer < size) return;
  fail(ErrorCode::invalid_argument, "{}: there is no rank {}; the ranks are 0 to {}", call, peer,
       size - 1);
}

void check_other(const char* call, int peer, int rank, int size) {
  check_peer(call, peer, size);
  if (peer == rank) fail(ErrorCode::invalid_argument, "{}: rank {} is this rank", call, peer);
}

}  // namespace tessera::parallel
