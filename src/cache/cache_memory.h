// Memory on a device; where the Context's workspace only counts, addresses without memory.
#pragma once

#include <cstdint>
#include <memory>

#include "core/workspace.h"
#include "tessera/buffer.h"
#include "tessera/context.h"

namespace tessera {

class CacheMemory {
 public:
  CacheMemory(Context& ctx, std::int64_t bytes)
      : frame_(ctx.workspace().is_counting() ? std::make_unique<Workspace::Frame>(ctx.workspace())
                                             : nullptr),
        buffer_(frame_ ? 0 : bytes, ctx.device()),
        data_(frame_ ? frame_->take<char>(bytes) : static_cast<char*>(buffer_.data())) {}

  char* data() const { return data_; }
  bool is_there() const { return !frame_; }

 private:
  std::unique_ptr<Workspace::Frame> frame_;
  Buffer buffer_;
  char* data_;
};

}  // namespace tessera
