// Multiprocessors that somebody else uses.
#pragma once

#include <cstdint>

#include "tessera/context.h"

namespace tessera::test {

// Has a kernel on another Context's stream hold so many multiprocessors, with all of their shared
// memory, until the object ends. The kernel gives up after some seconds: nothing can hang.
class HeldMultiprocessors {
 public:
  // Returns when the kernel holds them all.
  HeldMultiprocessors(Context& other, int count);
  ~HeldMultiprocessors();
  HeldMultiprocessors(const HeldMultiprocessors&) = delete;
  HeldMultiprocessors& operator=(const HeldMultiprocessors&) = delete;

  // False if the kernel did not start everywhere, or has given up somewhere.
  bool all_held() const;

 private:
  Context& other_;
  int count_;
  // Pinned: [block] 1: holds, 2: has given up; then one word, 1: let go.
  std::uint32_t* words_ = nullptr;
};

}  // namespace tessera::test
