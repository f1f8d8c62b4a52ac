// Scratch memory for ops, given back in the reverse of the order in which it was taken. A stream of
// steps reserves what its largest step will need, so that the hot path never allocates. Without a
// reservation the workspace grows while new shapes appear, and then becomes one block.
//
// Threads: one at a time. A second one is refused (OneUser).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/checked.h"
#include "core/one_user.h"
#include "tessera/buffer.h"

namespace tessera {

class Workspace {
 public:
  explicit Workspace(Device device) : device_(device) {}

  // Everything taken through a Frame is given back when it ends. Frames nest: the newest one alone
  // takes memory, and it ends first. A frame that ends before a newer one keeps its memory until
  // that one has ended. A destructor cannot throw, so the next frame or take() does: it throws
  // Error (invalid_argument) until all frames have ended, and at least once.
  class Frame {
   public:
    explicit Frame(Workspace& workspace);
    ~Frame();
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

    // Uninitialised, aligned to Buffer::kAlignment.
    template <typename T>
    T* take(std::int64_t count) {
      return static_cast<T*>(workspace_.take(checked_mul(count, sizeof(T)), depth_));
    }
    // A contiguous tensor on the workspace's device.
    Tensor take(DType dtype, std::initializer_list<std::int64_t> shape);

   private:
    Workspace& workspace_;
    int depth_ = 0;  // frames when this one began, itself included
    std::size_t block_ = 0;
    std::int64_t block_used_ = 0, used_ = 0;
  };

  // While one lives, frames only count: they hand out successive addresses that have no memory. Ops
  // check their arguments, take what they would need, and return (OpScope).
  class Count {
   public:
    explicit Count(Workspace& workspace);
    ~Count();
    Count(const Count&) = delete;
    Count& operator=(const Count&) = delete;

    // What has been taken since the Count began and is still in use, and the most at any time.
    std::int64_t used_bytes() const { return workspace_.used_; }
    std::int64_t peak_bytes() const { return workspace_.peak_; }

   private:
    Workspace& workspace_;
    OneUser::Use use_;          // an op of another thread must not only count
    std::int64_t used_, peak_;  // of the real memory, to be restored
    bool counting_;
  };
  bool is_counting() const { return counting_; }

  // The thread that uses the workspace now: an op is in here from its beginning to its end.
  OneUser& user() { return user_; }

  // While one lives, frames take from somebody else's blocks, to which it adds what is missing. It
  // neither frees nor moves a block, because a captured graph has its address
  // (core/captured_graph.h).
  class Elsewhere {
   public:
    Elsewhere(Workspace& workspace, std::vector<Buffer>& blocks);
    ~Elsewhere();
    Elsewhere(const Elsewhere&) = delete;
    Elsewhere& operator=(const Elsewhere&) = delete;

   private:
    Workspace& workspace_;
    OneUser::Use use_;
    std::vector<Buffer>& blocks_;  // theirs, and meanwhile ours
    std::size_t block_;
    std::int64_t block_used_, used_;
  };

  // After this, `bytes` can be taken without an allocation. Throws Error (out_of_memory).
  void reserve(std::int64_t bytes);
  // Releases all memory, unless some of it is in use.
  void release();

  std::int64_t held_bytes() const;
  std::int64_t peak_bytes() const { return peak_; }
  void reset_peak() { peak_ = used_; }

 private:
  void* take(std::int64_t bytes, int depth);
  void* take_counted(std::int64_t bytes);
  void require_order();

  Device device_;
  OneUser user_;
  std::vector<Buffer> blocks_;   // filled in order; all but the last in use are full
  std::size_t block_ = 0;        // the block that is being filled
  std::int64_t block_used_ = 0;  // bytes of it
  std::int64_t used_ = 0;        // bytes in use in all blocks
  std::int64_t peak_ = 0;
  int frames_ = 0;
  bool counting_ = false;
  bool out_of_order_ = false;  // a frame ended before a newer one; not reported yet
};

// Adds up the pieces that an op takes, as a frame would, for functions that say how much scratch a
// call needs.
class ScratchSize {
 public:
  template <typename T>
  ScratchSize& add(std::int64_t count) {
    const std::int64_t bytes = checked_mul(count, sizeof(T));
    bytes_ =
        checked_add(bytes_, checked_align(std::max<std::int64_t>(bytes, 1), Buffer::kAlignment));
    return *this;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t bytes_ = 0;
};

}  // namespace tessera
