// Replaces src/cuda/tile/cp_async.cuh. Copies land as late as they may: their place holds
// NaN until the thread has waited for them.
#pragma once

#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <vector>

#include "emulated/simt.h"

namespace tessera::cuda {
namespace emulated_copies {

struct Copy {
  void* to;
  const void* from;  // null: zeros
  std::size_t bytes = 16;
};
struct Thread {
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> closed;
};

// Of the thread that runs. Blocks run one after the other, and a block has waited for its copies
// when it ends.
inline Thread& current() {
  static std::map<unsigned, Thread> threads;
  return threads[emulated::current_thread.thread.x];
}

}  // namespace emulated_copies

inline void copy_async(void* to, const void* from, bool there) {
  std::memset(to, 0xff, 16);
  emulated_copies::current().open.push_back({to, there ? from : nullptr});
}

inline void close_copy_group() {
  emulated_copies::Thread& thread = emulated_copies::current();
  thread.closed.push_back(std::move(thread.open));
  thread.open.clear();
}

template <int left>
void wait_for_copies() {
  emulated_copies::Thread& thread = emulated_copies::current();
  while (thread.closed.size() > static_cast<std::size_t>(left)) {
    for (const emulated_copies::Copy& copy : thread.closed.front()) {
      if (copy.from == nullptr) {
        std::memset(copy.to, 0, copy.bytes);
      } else {
        std::memcpy(copy.to, copy.from, copy.bytes);
      }
    }
    thread.closed.pop_front();
  }
}

}  // namespace tessera::cuda
