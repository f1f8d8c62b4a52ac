#include "tessera/kv_append.h"

#include "cpu/elementwise/kv_append.h"
#include "cuda/elementwise/kv_append.h"
#include "ops/kv_append_args.h"
#include "ops/op_scope.h"

namespace tessera {

void kv_append(Context& ctx, const KvAppendArgs& args) {
  const OpScope op(ctx, "kv_append");
  check_kv_append(op, args);
  if (op.only_counts([&] { return kv_slots_scratch_bytes(ctx, args); })) return;
  op.run([&] { return "k " + to_string(args.k) + " pages " + to_string(args.k_pages); },
         [&] {
           check_kv_slots(op, ctx, args);
           cpu::kv_append(ctx, args);
           return "cpu";
         },
         [&] {
           cuda::kv_append(ctx, args);
           return "cuda";
         },
         [&] {
           return OpCost{args.slots.bytes() + kv_append_bytes(args), 0};
         });
}

}  // namespace tessera
