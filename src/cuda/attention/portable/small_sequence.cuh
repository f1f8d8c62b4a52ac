// A sequence in ints, for the tensor core kernels. It takes half the instructions of Sequence. That
// matters in a kernel of a few microseconds, which cannot start to load before it has these
// numbers.
#pragma once

#include "cuda/attention/call.h"

namespace tessera::cuda {

struct SmallSequence {
  int index;
  int q_batch, q_begin, n_q;
  int k_batch, k_begin, n_k;
  int hole_begin, hole_size;

  __device__ int shift() const { return n_k - n_q; }
  // Like AttentionCall::sequence().
  __device__ static SmallSequence of(const AttentionCall& call, int index) {
    const auto clamped = [](int x, int low, int high) { return std::min(std::max(x, low), high); };
    const int n_q = static_cast<int>(call.n_q), n_k = static_cast<int>(call.n_k);
    SmallSequence s{index, index, 0, n_q, index, 0, n_k, 0, 0};
    if (call.q_offsets != nullptr) {
      s.q_batch = 0;
      s.q_begin = clamped(call.q_offsets[index], 0, n_q);
      s.n_q = clamped(call.q_offsets[index + 1], s.q_begin, n_q) - s.q_begin;
    }
    if (call.k_offsets != nullptr) {
      s.k_batch = 0;
      s.k_begin = clamped(call.k_offsets[index], 0, n_k);
      s.n_k = clamped(call.k_offsets[index + 1], s.k_begin, n_k) - s.k_begin;
    }
    if (call.lengths != nullptr) s.n_k = clamped(call.lengths[index], 0, n_k);
    if (call.holes != nullptr) {
      s.hole_begin = clamped(call.holes[index * call.hole_stride], 0, n_k);
      s.hole_size = clamped(call.holes[index * call.hole_stride + 1], 0, n_k);
      // Keys after the hole end with the last page.
      s.n_k = std::min(s.n_k, std::max(s.hole_begin, n_k - s.hole_size));
    }
    return s;
  }
  // Some of the queries, as a sequence of their own. It ends with the last key that they see under
  // a mask that hides later keys, so that positions stay the same.
  __device__ SmallSequence run(int first, int queries) const {
    const int begin = std::min(first, n_q), end = std::min(first + queries, n_q);
    SmallSequence s = *this;
    s.q_begin += begin;
    s.n_q = end - begin;
    s.n_k = std::max(0, n_k - (n_q - end));
    return s;
  }
  // For the addresses of its rows.
  __device__ operator Sequence() const {
    return {index, q_batch, q_begin, n_q, k_batch, k_begin, n_k, {hole_begin, hole_size}};
  }
};

}  // namespace tessera::cuda
