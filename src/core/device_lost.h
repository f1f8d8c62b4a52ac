// A fault in a kernel, after which the driver does no more GPU work for this process. Code that
// works on a Context catches it and marks the Context as lost. The rest of the program continues
// without the GPU.
#pragma once

#include <string>

#include "tessera/error.h"

namespace tessera {

inline constexpr const char* kLostAdvice =
    "; GPU work of this process is lost: use the CPU, or start the program again";

class DeviceLost : public Error {
 public:
  explicit DeviceLost(const std::string& what_failed)
      : Error(ErrorCode::device, what_failed + kLostAdvice), what_failed_(what_failed) {}
  const std::string& what_failed() const { return what_failed_; }

 private:
  std::string what_failed_;
};

}  // namespace tessera
