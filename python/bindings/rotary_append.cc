#include "tessera/rotary_append.h"

#include "bind.h"
#include "rope_object.h"
#include "rotary_append_arguments.h"

namespace tessera::python {

using namespace nb::literals;

RotaryAppendArgs rotary_append_arguments(Call& call, const RotaryAppendObjects& objects,
                                         nb::object& q_out) {
  RotaryAppendArgs args;
  args.q = call.input("q", objects.q);
  args.k = call.input("k", objects.k);
  args.v = call.input("v", objects.v);
  args.positions = call.input("positions", objects.positions);
  args.rope = rope_argument(call, "rope", objects.rope);
  args.rotate_keys = objects.rotate_keys;
  args.slots = call.input("slots", objects.slots);
  args.k_pages = call.output("k_pages", objects.k_pages);
  args.v_pages = call.output("v_pages", objects.v_pages);
  args.k_scales = call.output("k_scales", objects.k_scales);
  args.v_scales = call.output("v_scales", objects.v_scales);
  args.q_out = call.output("q_out", q_out, objects.q, args.q.dtype, shape_of(args.q));
  return args;
}

namespace {

Result run_rotary_append(ArrayInput q, ArrayInput k, ArrayInput v, ArrayInput positions,
                         nb::handle rope, bool rotate_keys, ArrayInput slots, ArrayInput k_pages,
                         ArrayInput v_pages, ArrayOutput q_out, ArrayInput k_scales,
                         ArrayInput v_scales, nb::handle ctx) {
  Call call("rotary_append", ctx);
  const RotaryAppendArgs args = rotary_append_arguments(call,
                                                        {.q = q,
                                                         .k = k,
                                                         .v = v,
                                                         .positions = positions,
                                                         .rope = rope,
                                                         .rotate_keys = rotate_keys,
                                                         .slots = slots,
                                                         .k_pages = k_pages,
                                                         .v_pages = v_pages,
                                                         .k_scales = k_scales,
                                                         .v_scales = v_scales},
                                                        q_out);
  call.run([&](Context& c) { rotary_append(c, args); });
  return q_out;
}

}  // namespace

void bind_rotary_append(nb::module_& m) {
  m.def(
      "rotary_append", &run_rotary_append, nb::kw_only(), "q"_a, "k"_a, "v"_a, "positions"_a,
      "rope"_a, "rotate_keys"_a = true, "slots"_a, "k_pages"_a, "v_pages"_a, "q_out"_a = nb::none(),
      "k_scales"_a = nb::none(), "v_scales"_a = nb::none(), "ctx"_a = nb::none(),
      "rotary() of q [tokens, heads, dim] and k [tokens, kv_heads, dim], and kv_append() of k and\n"
      "v, in one op. positions: int32 or int64 [tokens]. Returns q_out, like q.\n\n"
      ">>> q, k = numpy.ones((3, 8, 64), 'float32'), numpy.ones((3, 2, 64), 'float32')\n"
      ">>> kp, vp = numpy.zeros((2, 4, 16, 2, 64), 'float32')\n"
      ">>> rope = tessera.Rope(numpy.float32(tessera.rope_inv_freq(64)))\n"
      ">>> at = numpy.arange(3, dtype='int32')\n"
      ">>> q = tessera.rotary_append(q=q, k=k, v=k, positions=at, rope=rope, slots=at,\n"
      "...                           k_pages=kp, v_pages=vp)");
}

}  // namespace tessera::python
