// Bias and residual of linear() added by a pass of their own instead of in its epilogue: what a
// model without that fusion would do. For `tessera profile --fusion` and tests, which measure what
// the fusion gains. On the CPU and in f32; other calls, and those with an activation, stay fused.
#pragma once

#include "tessera/context.h"
#include "tessera/linear.h"

namespace tessera {

// For the ops of this thread, for as long as it lives. Results have the same bits.
class ApartAdds {
 public:
  ApartAdds();
  ~ApartAdds();
  ApartAdds(const ApartAdds&) = delete;
  ApartAdds& operator=(const ApartAdds&) = delete;

 private:
  bool before_;
};

// For linear(): whether this call is to be taken apart, and the call in two ops, linear and add.
bool has_apart_adds(const Context& ctx, const LinearArgs& args);
void linear_with_apart_adds(Context& ctx, const LinearArgs& args);

}  // namespace tessera
