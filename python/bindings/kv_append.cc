#include "tessera/kv_append.h"

#include "bind.h"
#include "call.h"

namespace tessera::python {

using namespace nb::literals;

void bind_kv_append(nb::module_& m) {
  m.def(
      "kv_append",
      [](ArrayInput k, ArrayInput v, ArrayInput slots, ArrayInput k_pages, ArrayInput v_pages,
         ArrayInput k_scales, ArrayInput v_scales, nb::handle ctx) {
        Call call("kv_append", ctx);
        KvAppendArgs args;
        args.k = call.input("k", k);
        args.v = call.input("v", v);
        args.slots = call.input("slots", slots);
        args.k_pages = call.output("k_pages", k_pages);
        args.v_pages = call.output("v_pages", v_pages);
        args.k_scales = call.output("k_scales", k_scales);
        args.v_scales = call.output("v_scales", v_scales);
        call.run([&](Context& c) { kv_append(c, args); });
      },
      nb::kw_only(), "k"_a, "v"_a, "slots"_a, "k_pages"_a, "v_pages"_a, "k_scales"_a = nb::none(),
      "v_scales"_a = nb::none(), "ctx"_a = nb::none(),
      "Writes k and v [tokens, kv_heads, dim] into the pools k_pages and v_pages\n"
      "[pages, page_size, kv_heads, dim], at slots (int32 [tokens]: page * page_size + row).\n"
      "Pools of float8_e4m3fn or int8 need k_scales and v_scales, f32 [pages, kv_heads,\n"
      "page_size].\n\n"
      ">>> k = numpy.ones((3, 2, 64), 'float32')\n"
      ">>> kp, vp = numpy.zeros((2, 4, 16, 2, 64), 'float32')\n"
      ">>> tessera.kv_append(k=k, v=k, slots=numpy.int32([16, 17, 18]), k_pages=kp, v_pages=vp)");
}

}  // namespace tessera::python
