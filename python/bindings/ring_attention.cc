#include "tessera/ring_attention.h"

#include "bind.h"
#include "call.h"
#include "lse_output.h"
#include "option_arguments.h"

namespace tessera::python {

using namespace nb::literals;

namespace {

Result run_ring(Communicator& ranks, std::int64_t tokens, ArrayInput q, ArrayInput k, ArrayInput v,
                ArrayOutput out, nb::object lse, MaskInput mask, float scale, float softcap,
                nb::handle ctx) {
  Call call("ring_attention", ctx);
  RingAttentionArgs args;
  args.tokens = tokens;
  args.q = call.input("q", q);
  args.k = call.input("k", k);
  args.v = call.input("v", v);
  args.out = call.output("out", out, q, args.q.dtype, shape_of(args.q));
  LseOutput sums(std::move(lse));
  args.lse = sums.tensor(call, q, args.q);
  args.mask = mask_argument("ring_attention", mask);
  args.scale = scale;
  args.softcap = softcap;
  call.run([&](Context& c) { ring_attention(c, ranks, args); });
  return sums.result(out);
}

Result run_ring_backward(Communicator& ranks, std::int64_t tokens, ArrayInput q, ArrayInput k,
                         ArrayInput v, ArrayInput out, ArrayInput lse, ArrayInput d_out,
                         ArrayOutput d_q, ArrayOutput d_k, ArrayOutput d_v, MaskInput mask,
                         float scale, float softcap, bool deterministic, nb::handle ctx) {
  Call call("ring_attention_backward", ctx);
  RingAttentionBackwardArgs args;
  RingAttentionArgs& forward = args.forward;
  forward.tokens = tokens;
  forward.q = call.input("q", q);
  forward.k = call.input("k", k);
  forward.v = call.input("v", v);
  forward.out = call.input("out", out);
  forward.lse = call.input("lse", lse);
  forward.mask = mask_argument("ring_attention_backward", mask);
  forward.scale = scale;
  forward.softcap = softcap;
  args.d_out = call.input("d_out", d_out);
  args.d_q = call.output("d_q", d_q, q, forward.q.dtype, shape_of(forward.q));
  args.d_k = call.output("d_k", d_k, k, forward.k.dtype, shape_of(forward.k));
  args.d_v = call.output("d_v", d_v, v, forward.v.dtype, shape_of(forward.v));
  args.deterministic = deterministic;
  call.run([&](Context& c) { ring_attention_backward(c, ranks, args); });
  return nb::make_tuple(d_q, d_k, d_v);
}

}  // namespace

void bind_ring_attention(nb::module_& m) {
  m.def(
      "ring_attention", &run_ring, nb::kw_only(), "ranks"_a, "tokens"_a, "q"_a, "k"_a, "v"_a,
      "out"_a = nb::none(), "lse"_a = nb::none(), "mask"_a = nb::none(), "scale"_a = 0.f,
      "softcap"_a = 0.f, "ctx"_a = nb::none(),
      "attention() over a sequence of `tokens` rows that is spread over the processes of `ranks`\n"
      "(a Communicator; from Python it is one_rank(), and the rows are all of them).\n\n"
      "q: [batch, rows, heads, dim], k, v: [batch, rows, kv_heads, dim], this rank's rows. The\n"
      "mask is over the whole sequence. lse: f32 [batch, heads, rows], or True for a new one;\n"
      "then the result is (out, lse).\n\n"
      ">>> q = numpy.ones((1, 5, 8, 64), 'float32')\n"
      ">>> tessera.ring_attention(ranks=tessera.one_rank(), tokens=5, q=q, k=q, v=q,\n"
      "...                        mask=tessera.Mask.causal()).shape\n"
      "(1, 5, 8, 64)");
  m.def(
      "ring_attention_backward", &run_ring_backward, nb::kw_only(), "ranks"_a, "tokens"_a, "q"_a,
      "k"_a, "v"_a, "out"_a, "lse"_a, "d_out"_a, "d_q"_a = nb::none(), "d_k"_a = nb::none(),
      "d_v"_a = nb::none(), "mask"_a = nb::none(), "scale"_a = 0.f, "softcap"_a = 0.f,
      "deterministic"_a = false, "ctx"_a = nb::none(),
      "The gradients of ring_attention(): (d_q, d_k, d_v), like q, k and v. Takes what it was\n"
      "given, with the out and lse that it wrote; d_out is like q.\n\n"
      ">>> q, alone = numpy.ones((1, 5, 8, 64), 'float32'), tessera.one_rank()\n"
      ">>> out, lse = tessera.ring_attention(ranks=alone, tokens=5, q=q, k=q, v=q, lse=True)\n"
      ">>> d_q, d_k, d_v = tessera.ring_attention_backward(ranks=alone, tokens=5, q=q, k=q, v=q,\n"
      "...                                                 out=out, lse=lse, d_out=q)");
}

}  // namespace tessera::python
