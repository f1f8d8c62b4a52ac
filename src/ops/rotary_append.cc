#include "tessera/rotary_append.h"

#include "cpu/elementwise/rotary_append.h"
#include "cuda/rotary/rotary_append.h"
#include "ops/op_scope.h"
#include "ops/rotary_append_args.h"

namespace tessera {

void rotary_append(Context& ctx, const RotaryAppendArgs& args) {
  const OpScope op(ctx, "rotary_append");
  check_rotary_append(op, args);
  if (op.only_counts([&] { return rotary_append_scratch_bytes(ctx, args); })) return;
  op.run([&] { return "q " + to_string(args.q) + " k " + to_string(args.k); },
         [&] {
           check_rotary_append_values(op, ctx, args);
           cpu::rotary_append(ctx, args);
           return "cpu";
         },
         [&] {
           cuda::rotary_append(ctx, args);
           return "cuda";
         },
         [&] { return rotary_append_cost(args); });
}

}  // namespace tessera
