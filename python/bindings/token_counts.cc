#include "tessera/token_counts.h"

#include "bind.h"
#include "call.h"

namespace tessera::python {

using namespace nb::literals;

void bind_token_counts(nb::module_& m) {
  m.def(
      "fill_counts",
      [](ArrayInput counts, std::int64_t slot, ArrayInput ids, ArrayInput values, nb::handle ctx) {
        Call call("fill_counts", ctx);
        FillCountsArgs args;
        args.counts = call.output("counts", counts);
        args.slot = slot;
        args.ids = call.input("ids", ids);
        args.values = call.input("values", values);
        call.run([&](Context& c) { fill_counts(c, args); });
      },
      nb::kw_only(), "counts"_a, "slot"_a, "ids"_a = nb::none(), "values"_a = nb::none(),
      "ctx"_a = nb::none(),
      "Sets the counts of a slot (a row of counts, int32 [slots, n]): those of ids (int32 [m]) to\n"
      "values (int32 [m]; without them, the mark of the prompt), all others to 0.\n\n"
      ">>> counts = numpy.zeros((2, 4), 'int32')\n"
      ">>> ids, values = numpy.int32([3]), numpy.int32([2])\n"
      ">>> tessera.fill_counts(counts=counts, slot=1, ids=ids, values=values)\n"
      ">>> counts.tolist()\n[[0, 0, 0, 0], [0, 0, 0, 2]]");
  m.def(
      "count_tokens",
      [](ArrayInput counts, ArrayInput ids, ArrayInput slots, nb::handle ctx) {
        Call call("count_tokens", ctx);
        CountTokensArgs args;
        args.counts = call.output("counts", counts);
        args.ids = call.input("ids", ids);
        args.slots = call.input("slots", slots);
        call.run([&](Context& c) { count_tokens(c, args); });
      },
      nb::kw_only(), "counts"_a, "ids"_a, "slots"_a, "ctx"_a = nb::none(),
      "Adds 1 to the count of each token (ids: int32 [draws]) in its slot (int32 [draws]).\n\n"
      ">>> counts = numpy.zeros((2, 4), 'int32')\n"
      ">>> ids, slots = numpy.int32([3, 3]), numpy.int32([0, 0])\n"
      ">>> tessera.count_tokens(counts=counts, ids=ids, slots=slots)\n"
      ">>> counts.tolist()\n[[0, 0, 0, 2], [0, 0, 0, 0]]");
}

}  // namespace tessera::python
