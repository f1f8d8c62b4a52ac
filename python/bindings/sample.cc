#include "tessera/sample.h"

#include "bind.h"
#include "call.h"

namespace tessera::python {

using namespace nb::literals;

namespace {

Result run_sample(ArrayInput logits, double temperature, std::int64_t top_k, double top_p,
                  double min_p, std::uint64_t seed, std::uint64_t draw, ArrayOutput ids,
                  nb::handle ctx) {
  Call call("sample", ctx);
  SampleArgs args;
  args.logits = call.input("logits", logits);
  args.temperature = temperature;
  args.top_k = top_k;
  args.top_p = top_p;
  args.min_p = min_p;
  args.seed = seed;
  args.draw = draw;
  args.ids = call.output("ids", ids, logits, DType::i64, without_last(args.logits));
  call.run([&](Context& c) { sample(c, args); });
  return ids;
}

}  // namespace

void bind_sample(nb::module_& m) {
  m.def("sample", &run_sample, nb::kw_only(), "logits"_a, "temperature"_a = 1.0, "top_k"_a = 0,
        "top_p"_a = 1.0, "min_p"_a = 0.0, "seed"_a = 0, "draw"_a = 0, "ids"_a = nb::none(),
        "ctx"_a = nb::none(),
        "Draws a token for each row of logits [..., n]: ids [...] of int32 or int64. Row r takes\n"
        "the seed's random number draw + r, the same on every device.\n\n"
        ">>> logits = numpy.float32([[0, 5, 0], [9, 0, 0]])\n"
        ">>> tessera.sample(logits=logits, temperature=0.8, top_k=1, seed=1).tolist()\n[1, 0]");
}

}  // namespace tessera::python
