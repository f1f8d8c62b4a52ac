// Puts the work of a call in order with the stream on which its arrays are made and used: the call
// begins after what that stream was asked so far, and the stream goes on after the call. Nothing
// waits on the host, and a graph that captures the stream captures the call.
#pragma once

#include "tessera/context.h"

namespace tessera::python {

class StreamOrder {
 public:
  // `stream`: a cudaStream_t; null is CUDA's default stream. On the CPU nothing is done.
  StreamOrder(Context& ctx, void* stream);
  // Enqueues the way back. Not called if the op threw: then nothing was launched.
  void finish();

 private:
  Context& ctx_;
  void* stream_;
};

}  // namespace tessera::python
