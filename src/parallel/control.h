// How rank 0, which leads, tells the other ranks what to do next. Only rank 0 has requests, the
// schedule and the user.
#pragma once

#include <cstdint>

namespace tessera::parallel {

class ControlChannel {
 public:
  virtual ~ControlChannel() = default;

  // Rank 0 sends, every other rank receives. A waiting rank does not keep a core busy for long.
  virtual void send_bytes(void* data, std::int64_t bytes) = 0;
  virtual void receive_bytes(void* data, std::int64_t bytes) = 0;
  // Ends every rank with this status.
  [[noreturn]] virtual void abort(int status) = 0;
};

}  // namespace tessera::parallel
