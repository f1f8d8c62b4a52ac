// Scratch memory for ops, given back in the reverse order it was taken. It grows while a new shape
// is met for the first time and is then one block, so that the hot path never allocates.
#pragma once

#include <cstdint>
#include <vector>

#include "core/checked.h"
#include "tessera/buffer.h"

namespace tessera {

class Workspace {
 public:
  explicit Workspace(Device device) : device_(device) {}

  // Everything taken through a Frame is given back when it ends. Frames nest.
  class Frame {
   public:
    explicit Frame(Workspace& workspace);
    ~Frame();
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

    // Uninitialised, aligned to Buffer::kAlignment.
    template <typename T>
    T* take(std::int64_t count) {
      return static_cast<T*>(workspace_.take(checked_mul(count, sizeof(T))));
    }
    // A contiguous tensor on the workspace's device.
    Tensor take(DType dtype, std::initializer_list<std::int64_t> shape);

   private:
    Workspace& workspace_;
    std::size_t block_;
    std::int64_t block_used_, used_;
  };

  std::int64_t held_bytes() const;
  std::int64_t peak_bytes() const { return peak_; }
  void reset_peak() { peak_ = used_; }

 private:
  void* take(std::int64_t bytes);

  Device device_;
  std::vector<Buffer> blocks_;   // filled in order; all but the last in use are full
  std::size_t block_ = 0;        // the one that is being filled
  std::int64_t block_used_ = 0;  // bytes of it
  std::int64_t used_ = 0;        // bytes in use in all blocks
  std::int64_t peak_ = 0;
  int frames_ = 0;
};

}  // namespace tessera
