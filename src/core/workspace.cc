#include "core/workspace.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/fail.h"

namespace tessera {
namespace {

// The first block: enough for the small ops of a decode step.
constexpr std::int64_t kFirstBlock = 1 << 20;

// Where addresses without memory begin: outside any program's address space, and far from its end.
constexpr std::uintptr_t kNowhere = std::uintptr_t{1} << 60;

constexpr const char* kScratch = "scratch memory";  // how errors for a second thread begin

}  // namespace

Workspace::Frame::Frame(Workspace& workspace) : workspace_(workspace) {
  const OneUser::Use use(workspace.user_, kScratch);
  workspace.require_order();
  depth_ = workspace.frames_ + 1;
  block_ = workspace.block_;
  block_used_ = workspace.block_used_;
  used_ = workspace.used_;
  // If nothing is in use, several blocks become one that holds all that was ever needed.
  if (workspace.frames_ == 0 && workspace.blocks_.size() > 1 && !workspace.counting_) {
    const std::int64_t total = workspace.held_bytes();
    workspace.blocks_.clear();
    workspace.blocks_.emplace_back(total, workspace.device_);
  }
  ++workspace.frames_;
}

Workspace::Frame::~Frame() {
  const OneUser::Use use(workspace_.user_);
  const bool newest = depth_ == workspace_.frames_;
  if (newest) {
    workspace_.block_ = block_;
    workspace_.block_used_ = block_used_;
    workspace_.used_ = used_;
  } else {
    workspace_.out_of_order_ = true;
  }
  --workspace_.frames_;
  if (workspace_.frames_ == 0 && !newest) {
    workspace_.block_ = 0;
    workspace_.block_used_ = workspace_.used_ = 0;
  }
}

Tensor Workspace::Frame::take(DType dtype, std::initializer_list<std::int64_t> shape) {
  Tensor tensor(nullptr, dtype, shape, workspace_.device_);
  tensor.data = workspace_.take(checked_mul(tensor.numel(), size_of(dtype)), depth_);
  return tensor;
}

Workspace::Count::Count(Workspace& workspace)
    : workspace_(workspace),
      use_(workspace.user_, kScratch),
      used_(workspace.used_),
      peak_(workspace.peak_),
      counting_(workspace.counting_) {
  workspace_.counting_ = true;
  workspace_.used_ = workspace_.peak_ = 0;
}

Workspace::Count::~Count() {
  workspace_.counting_ = counting_;
  workspace_.used_ = used_;
  workspace_.peak_ = peak_;
}

// It counts as a frame, so that nothing is freed.
Workspace::Elsewhere::Elsewhere(Workspace& workspace, std::vector<Buffer>& blocks)
    : workspace_(workspace),
      use_(workspace.user_, kScratch),
      blocks_(blocks),
      block_(workspace.block_),
      block_used_(workspace.block_used_),
      used_(workspace.used_) {
  std::swap(workspace_.blocks_, blocks_);
  workspace_.block_ = 0;
  workspace_.block_used_ = 0;
  ++workspace_.frames_;
}

Workspace::Elsewhere::~Elsewhere() {
  std::swap(workspace_.blocks_, blocks_);
  workspace_.block_ = block_;
  workspace_.block_used_ = block_used_;
  workspace_.used_ = used_;
  --workspace_.frames_;
}

void Workspace::reserve(std::int64_t bytes) {
  const OneUser::Use use(user_, kScratch);
  if (bytes <= 0) return;
  bytes = checked_align(bytes, Buffer::kAlignment);
  const auto fits = [&](const Buffer& block) { return block.bytes() >= bytes; };
  if (frames_ == 0) {
    if (blocks_.size() == 1 && fits(blocks_[0])) return;
    blocks_.clear();  // first, so that there is room for the new one
    blocks_.emplace_back(bytes, device_);
    return;
  }
  const bool here = block_ < blocks_.size() && blocks_[block_].bytes() - block_used_ >= bytes;
  const std::size_t behind = std::min(block_ + 1, blocks_.size());
  if (here ||
      std::any_of(blocks_.begin() + static_cast<std::ptrdiff_t>(behind), blocks_.end(), fits)) {
    return;
  }
  blocks_.emplace_back(bytes, device_);
}

void Workspace::release() {
  const OneUser::Use use(user_, kScratch);
  if (frames_ == 0) blocks_.clear();
}

std::int64_t Workspace::held_bytes() const {
  std::int64_t total = 0;
  for (const Buffer& block : blocks_) total += block.bytes();
  return total;
}

void Workspace::require_order() {
  if (!out_of_order_) return;
  if (frames_ == 0) out_of_order_ = false;  // whole again, once this has been said
  fail(ErrorCode::invalid_argument,
       "scratch memory: a Workspace::Frame has ended before a newer one; end them in the reverse "
       "order");
}

void* Workspace::take(std::int64_t bytes, int depth) {
  const OneUser::Use use(user_, kScratch);
  require_order();
  if (depth != frames_) {
    fail(ErrorCode::invalid_argument,
         "scratch memory: an older Workspace::Frame takes memory while a newer one lives; take it "
         "from the newest");
  }
  bytes = checked_align(std::max<std::int64_t>(bytes, 1), Buffer::kAlignment);
  if (counting_) return take_counted(bytes);
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

void* Workspace::take_counted(std::int64_t bytes) {
  const std::uintptr_t start = kNowhere + static_cast<std::uintptr_t>(used_);
  used_ = checked_add(used_, bytes);
  peak_ = std::max(peak_, used_);
  return reinterpret_cast<void*>(start);  // NOLINT(performance-no-int-to-ptr): never followed
}

}  // namespace tessera
