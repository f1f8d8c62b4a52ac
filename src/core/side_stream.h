// A second stream beside that of a CUDA Context, for messages that travel while the Context
// computes:
//
//   side.begin(ctx);     // after the work that the Context already has
//   ... on side.stream() ...
//   side.end();
//   ...                  // more work for the Context
//   side.join(ctx);      // what the Context does next comes after the work on the side
//
// Nothing waits on the host, and a capture of the Context records both streams.
#pragma once

#include <memory>

#include "core/function_ref.h"
#include "tessera/device.h"

namespace tessera {

class Context;

// src/cuda/runtime/side_stream.cc; used by one thread at a time.
class SideStream {
 public:
  SideStream() = default;
  virtual ~SideStream() = default;
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  virtual void begin(Context& ctx) = 0;
  virtual void end() = 0;
  virtual void join(Context& ctx) = 0;
  virtual void* stream() const = 0;
};

namespace cuda {

// A build without CUDA throws.
std::unique_ptr<SideStream> make_side_stream(Device device);
// Runs `work` with `device` as the thread's current device, for libraries that use that one.
void with_device(Device device, FunctionRef<void()> work);

}  // namespace cuda

}  // namespace tessera
