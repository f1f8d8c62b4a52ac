// Adds bias and residual of linear() in a pass of their own instead of in its epilogue, as a model
// without that fusion would. For `tessera profile --fusion` and tests, which measure what the
// fusion gains. On the CPU and in f32; other calls, and those with an activation, stay fused.
#pragma once

#include "tessera/context.h"
#include "tessera/linear.h"

namespace tessera {

// Applies to the ops of this thread while it lives. Results have the same bits.
class ApartAdds {
 public:
  ApartAdds();
  ~ApartAdds();
  ApartAdds(const ApartAdds&) = delete;
  ApartAdds& operator=(const ApartAdds&) = delete;

 private:
  bool before_;
};

// For linear(): whether to split this call, and the call as two ops, linear and add.
bool has_apart_adds(const Context& ctx, const LinearArgs& args);
void linear_with_apart_adds(Context& ctx, const LinearArgs& args);

}  // namespace tessera
