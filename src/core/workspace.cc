#include "core/workspace.h"

#include <algorithm>

namespace tessera {
namespace {

// The first block: enough for the small ops of a decode step.
constexpr std::int64_t kFirstBlock = 1 << 20;

}  // namespace

Workspace::Frame::Frame(Workspace& workspace)
    : workspace_(workspace),
      block_(workspace.block_),
      block_used_(workspace.block_used_),
      used_(workspace.used_) {
  // With nothing in use, several blocks become one that holds all that was ever needed.
  if (workspace.frames_ == 0 && workspace.blocks_.size() > 1) {
    const std::int64_t total = workspace.held_bytes();
    workspace.blocks_.clear();
    workspace.blocks_.emplace_back(total, workspace.device_);
  }
  ++workspace.frames_;
}

Workspace::Frame::~Frame() {
  workspace_.block_ = block_;
  workspace_.block_used_ = block_used_;
  workspace_.used_ = used_;
  --workspace_.frames_;
}

Tensor Workspace::Frame::take(DType dtype, std::initializer_list<std::int64_t> shape) {
  Tensor tensor(nullptr, dtype, shape, workspace_.device_);
  tensor.data = workspace_.take(checked_mul(tensor.numel(), size_of(dtype)));
  return tensor;
}

std::int64_t Workspace::held_bytes() const {
  std::int64_t total = 0;
  for (const Buffer& block : blocks_) total += block.bytes();
  return total;
}

void* Workspace::take(std::int64_t bytes) {
  bytes = checked_align(std::max<std::int64_t>(bytes, 1), Buffer::kAlignment);
  while (block_ < blocks_.size() && block_used_ + bytes > blocks_[block_].bytes()) {
    ++block_;
    block_used_ = 0;
  }
  if (block_ == blocks_.size()) {
    // Doubling keeps the number of blocks, and of allocations, small while shapes grow.
    blocks_.emplace_back(std::max({bytes, kFirstBlock, held_bytes()}), device_);
  }
  char* start = static_cast<char*>(blocks_[block_].data()) + block_used_;
  block_used_ += bytes;
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  return start;
}

}  // namespace tessera
