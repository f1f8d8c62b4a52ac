// The one exception type Tessera throws; a caller's callbacks may throw what they like. A message
// is one sentence for users: what was given, what is accepted, and what to do.
//
// Threads: an Error may be passed from one thread to another.
#pragma once

#include <stdexcept>
#include <string>

namespace tessera {

enum class ErrorCode {
  invalid_argument,  // a shape, dtype, stride, pointer or value that the call does not accept
  unsupported,       // a valid request that this build or device cannot do
  out_of_memory,     // an allocation failed
  overflow,          // a size does not fit into 64 bits
  device,            // the device or its driver reported a failure
  file,              // a file that is missing, unreadable, wrong or truncated, or cannot be written
  busy,              // a valid request that came at a bad time: try again later
};

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace tessera
