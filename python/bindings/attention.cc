#include "tessera/attention.h"

#include "bind.h"
#include "call.h"
#include "lse_output.h"
#include "option_arguments.h"
#include "page_table_object.h"
#include "rope_object.h"

namespace tessera::python {

using namespace nb::literals;

PageTable pages_argument(Call& call, const char* op, nb::handle object) {
  if (object.is_none()) return {};
  if (!nb::isinstance<PageTableObject>(object)) {
    refuse(std::string(op) + ": pages must be a tessera.PageTable(table, lengths, holes)");
  }
  const PageTableObject& pages = nb::cast<const PageTableObject&>(object);
  return {.table = call.input("pages.table", pages.table),
          .lengths = call.input("pages.lengths", pages.lengths),
          .holes = call.input("pages.holes", pages.holes)};
}

namespace {

Result run_attention(ArrayInput q, ArrayInput k, ArrayInput v, ArrayOutput out, nb::object lse,
                     MaskInput mask, float scale, float softcap, DropoutInput dropout,
                     ArrayInput q_offsets, ArrayInput k_offsets, nb::handle pages,
                     nb::handle rope_on_read, ArrayInput k_scales, ArrayInput v_scales,
                     bool fixed_splits, nb::handle ctx) {
  Call call("attention", ctx);
  AttentionArgs args;
  args.q = call.input("q", q);
  args.k = call.input("k", k);
  args.v = call.input("v", v);
  args.out = call.output("out", out, q, args.q.dtype, shape_of(args.q));
  LseOutput sums(std::move(lse));
  args.lse = sums.tensor(call, q, args.q);
  args.mask = mask_argument("attention", mask);
  args.scale = scale;
  args.softcap = softcap;
  args.dropout = dropout_argument("attention", dropout);
  args.q_offsets = call.input("q_offsets", q_offsets);
  args.k_offsets = call.input("k_offsets", k_offsets);
  args.pages = pages_argument(call, "attention", pages);
  args.rope_on_read = rope_argument(call, "rope_on_read", rope_on_read);
  args.k_scales = call.input("k_scales", k_scales);
  args.v_scales = call.input("v_scales", v_scales);
  args.fixed_splits = fixed_splits;
  call.run([&](Context& c) { attention(c, args); });
  return sums.result(out);
}

Result run_backward(ArrayInput q, ArrayInput k, ArrayInput v, ArrayInput out, ArrayInput lse,
                    ArrayInput d_out, ArrayOutput d_q, ArrayOutput d_k, ArrayOutput d_v,
                    MaskInput mask, float scale, float softcap, DropoutInput dropout,
                    ArrayInput q_offsets, ArrayInput k_offsets, bool deterministic,
                    nb::handle ctx) {
  Call call("attention_backward", ctx);
  AttentionBackwardArgs args;
  args.deterministic = deterministic;
  args.forward.q = call.input("q", q);
  args.forward.k = call.input("k", k);
  args.forward.v = call.input("v", v);
  args.forward.out = call.input("out", out);
  args.forward.lse = call.input("lse", lse);
  args.forward.mask = mask_argument("attention_backward", mask);
  args.forward.scale = scale;
  args.forward.softcap = softcap;
  args.forward.dropout = dropout_argument("attention_backward", dropout);
  args.forward.q_offsets = call.input("q_offsets", q_offsets);
  args.forward.k_offsets = call.input("k_offsets", k_offsets);
  args.d_out = call.input("d_out", d_out);
  args.d_q = call.output("d_q", d_q, q, args.forward.q.dtype, shape_of(args.forward.q));
  args.d_k = call.output("d_k", d_k, k, args.forward.k.dtype, shape_of(args.forward.k));
  args.d_v = call.output("d_v", d_v, v, args.forward.v.dtype, shape_of(args.forward.v));
  call.run([&](Context& c) { attention_backward(c, args); });
  return nb::make_tuple(d_q, d_k, d_v);
}

}  // namespace

void bind_attention(nb::module_& m) {
  nb::class_<PageTableObject>(
      m, "PageTable",
      "Where the keys of each sequence lie in a pool of pages [pages, page_size,\n"
      "kv_heads, dim].\n\n"
      ">>> table = numpy.int32([[2, 0], [1, 3]])  # two sequences, two pages each\n"
      ">>> pages = tessera.PageTable(table, lengths=numpy.int32([20, 32]))\n"
      ">>> pages.table.shape, pages.holes\n((2, 2), None)")
      .def(
          "__init__",
          [](PageTableObject* self, nb::object table, nb::object lengths, nb::object holes) {
            new (self) PageTableObject{std::move(table), std::move(lengths), std::move(holes)};
          },
          "table"_a, "lengths"_a, "holes"_a = nb::none(),
          "table: int32 [batch, pages]; lengths: int32 [batch]; holes: int32 [batch, 2].")
      .def_ro("table", &PageTableObject::table)
      .def_ro("lengths", &PageTableObject::lengths)
      .def_ro("holes", &PageTableObject::holes);
  m.def(
      "attention", &run_attention, nb::kw_only(), "q"_a, "k"_a, "v"_a, "out"_a = nb::none(),
      "lse"_a = nb::none(), "mask"_a = nb::none(), "scale"_a = 0.f, "softcap"_a = 0.f,
      "dropout"_a = nb::none(), "q_offsets"_a = nb::none(), "k_offsets"_a = nb::none(),
      "pages"_a = nb::none(), "rope_on_read"_a = nb::none(), "k_scales"_a = nb::none(),
      "v_scales"_a = nb::none(), "fixed_splits"_a = false, "ctx"_a = nb::none(),
      "out = dropout(softmax(softcap(scale q k^T) + mask)) v\n\n"
      "q: [batch, n_q, heads, dim] of f32, f16 or bf16; k, v: [batch, n_k, kv_heads, dim], or\n"
      "page pools with `pages`. k and v may be float8_e4m3fn or int8, with k_scales and v_scales:\n"
      "f32 [batch, kv_heads, n_k], or [pages, kv_heads, page_size]. lse: f32 [batch, heads, n_q],\n"
      "or True for a new one; then the result is (out, lse). scale 0 is 1 / sqrt(dim).\n"
      "fixed_splits: bits that do not depend on the rest of the batch, on a GPU too.\n\n"
      ">>> q, k = numpy.ones((1, 5, 8, 64), 'float32'), numpy.ones((1, 7, 2, 64), 'float32')\n"
      ">>> tessera.attention(q=q, k=k, v=k, mask=tessera.Mask.causal()).shape\n(1, 5, 8, 64)");
  m.def("attention_backward", &run_backward, nb::kw_only(), "q"_a, "k"_a, "v"_a, "out"_a, "lse"_a,
        "d_out"_a, "d_q"_a = nb::none(), "d_k"_a = nb::none(), "d_v"_a = nb::none(),
        "mask"_a = nb::none(), "scale"_a = 0.f, "softcap"_a = 0.f, "dropout"_a = nb::none(),
        "q_offsets"_a = nb::none(), "k_offsets"_a = nb::none(), "deterministic"_a = false,
        "ctx"_a = nb::none(),
        "The gradients of attention(): (d_q, d_k, d_v), like q, k and v. Takes what attention()\n"
        "was given, with the out and lse that it wrote. deterministic: the same bits every time,\n"
        "on a GPU too.\n\n"
        ">>> q = numpy.ones((1, 5, 8, 64), 'float32')\n"
        ">>> out, lse = tessera.attention(q=q, k=q, v=q, lse=True)\n"
        ">>> d_q, d_k, d_v = tessera.attention_backward(q=q, k=q, v=q, out=out, lse=lse, d_out=q)");
}

}  // namespace tessera::python
