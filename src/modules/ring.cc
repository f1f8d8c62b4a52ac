#include "modules/ring.h"

#include <algorithm>

#include "core/checked.h"
#include "core/fail.h"
#include "core/format.h"
#include "tessera/convert.h"

namespace tessera {

RingLayout::RingLayout(std::int64_t tokens, int size, std::int64_t multiple)
    : tokens_(tokens), size_(size) {
  if (tokens < 0 || size < 1 || multiple < 1) {
    fail(ErrorCode::invalid_argument, "{} tokens cannot be spread over {} ranks in multiples of {}",
         tokens, size, multiple);
  }
  step_ = checked_align(ceil_div(tokens, 2 * size), multiple);
}

std::array<RingLayout::Chunk, 2> RingLayout::chunks(int rank) const {
  const auto chunk = [&](std::int64_t index) {
    return Chunk{std::min(tokens_, index * step_), std::min(tokens_, (index + 1) * step_)};
  };
  return {chunk(rank), chunk(2 * size_ - 1 - rank)};
}

std::int64_t RingLayout::rows(int rank) const {
  return chunks(rank)[0].size() + chunks(rank)[1].size();
}

std::int64_t RingLayout::most_rows() const {
  std::int64_t most = 0;
  for (int rank = 0; rank < size_; ++rank) most = std::max(most, rows(rank));
  return most;
}

RingLayout ring_layout(std::int64_t tokens, int size, const Mask& mask) {
  return {tokens, size, mask.kind() == Mask::Kind::blocks ? mask.pattern().block() : 1};
}

void check_ring(const char* op, const Communicator& ranks, const RingAttentionArgs& args) {
  const std::int64_t rows = ring_layout(args.tokens, ranks.size(), args.mask).rows(ranks.rank());
  for (const auto& [name, tensor] : {std::pair{"q", args.q}, {"k", args.k}, {"v", args.v}}) {
    if (tensor.rank == 4 && tensor.size(1) == rows) continue;
    fail(ErrorCode::invalid_argument,
         "{}: {} must be [batch, {}, heads, dim], the rows of rank {} of {}; got {}", op, name,
         rows, ranks.rank(), ranks.size(), tensor);
  }
}

Ring::Ring(Context& ctx, Communicator& ranks, Workspace::Frame& frame, const RingLayout& layout,
           const Tensor& k, const Tensor& v, DType dtype)
    : ctx_(ctx), ranks_(ranks), owner_(ranks.rank()) {
  const auto take = [&] {
    return frame.take(dtype, {2, k.size(0), layout.most_rows(), k.size(2), k.size(3)});
  };
  here_ = take();
  next_ = ranks.size() > 1 ? take() : Tensor();
  if (k.numel() == 0) return;
  convert(ctx, {.x = k, .out = keys(0, k.size(1))});
  convert(ctx, {.x = v, .out = values(0, v.size(1))});
}

void Ring::start() {
  const int size = ranks_.size(), rank = ranks_.rank();
  pending_ = ranks_.start_exchange(ctx_, here_, (rank + 1) % size, next_, (rank + size - 1) % size);
}

void Ring::turn() {
  pending_->wait();
  pending_.reset();
  std::swap(here_, next_);
  owner_ = (owner_ + ranks_.size() - 1) % ranks_.size();
}

}  // namespace tessera
