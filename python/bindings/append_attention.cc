#include "tessera/append_attention.h"

#include "bind.h"
#include "lse_output.h"
#include "option_arguments.h"
#include "page_table_object.h"
#include "rope_object.h"
#include "rotary_append_arguments.h"

namespace tessera::python {

using namespace nb::literals;

namespace {

// tokens [batch * n_q, heads, dim] as [batch, n_q, heads, dim]. What has another rank stays as it
// is, and the op refuses it.
Tensor by_sequence(const Tensor& tokens, std::int64_t batch) {
  if (tokens.rank != 3) return tokens;
  const std::int64_t n_q = tokens.shape[0] / batch;
  Tensor split = tokens;
  split.rank = 4;
  split.shape = {batch, n_q, tokens.shape[1], tokens.shape[2]};
  split.strides = {n_q * tokens.strides[0], tokens.strides[0], tokens.strides[1],
                   tokens.strides[2]};
  return split;
}

// How many sequences the tokens belong to, all of as many: one for each length of the page table,
// or a single row of a ragged batch, whose parts q_offsets names.
std::int64_t sequences_of(const AttentionArgs& attention, const Tensor& q) {
  if (attention.q_offsets.defined() || attention.pages.lengths.rank != 1) return 1;
  const std::int64_t batch = attention.pages.lengths.shape[0];
  if (batch < 1 || q.rank != 3 || q.shape[0] % batch != 0) {
    refuse("append_attention: q is " + to_string(q) + " and pages has " + std::to_string(batch) +
           " sequences; give as many tokens for each of them, or q_offsets");
  }
  return batch;
}

Result run_append_attention(ArrayInput q, ArrayInput k, ArrayInput v, ArrayInput positions,
                            nb::handle rope, bool rotate_keys, ArrayInput slots, ArrayInput k_pages,
                            ArrayInput v_pages, nb::handle pages, ArrayOutput out,
                            ArrayOutput q_out, nb::object lse, MaskInput mask, float scale,
                            float softcap, DropoutInput dropout, ArrayInput q_offsets,
                            nb::handle rope_on_read, ArrayInput k_scales, ArrayInput v_scales,
                            bool fixed_splits, bool settled, nb::handle ctx) {
  Call call("append_attention", ctx);
  AppendAttentionArgs args;
  args.append = rotary_append_arguments(call,
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
  const RotaryAppendArgs& append = args.append;

  AttentionArgs& attention = args.attention;
  attention.pages = pages_argument(call, "append_attention", pages);
  attention.q_offsets = call.input("q_offsets", q_offsets);
  const std::int64_t batch = sequences_of(attention, append.q);
  attention.q = by_sequence(append.q_out, batch);
  attention.k = append.k_pages;
  attention.v = append.v_pages;
  attention.k_scales = append.k_scales;
  attention.v_scales = append.v_scales;
  attention.out =
      by_sequence(call.output("out", out, q, append.q.dtype, shape_of(append.q)), batch);
  LseOutput sums(std::move(lse));
  attention.lse = sums.tensor(call, q, attention.q);
  attention.mask = mask_argument("append_attention", mask);
  attention.scale = scale;
  attention.softcap = softcap;
  attention.dropout = dropout_argument("append_attention", dropout);
  attention.fixed_splits = fixed_splits;
  attention.rope_on_read = rope_argument(call, "rope_on_read", rope_on_read);
  args.settled = settled;
  call.run([&](Context& c) { append_attention(c, args); });
  return sums.result(out);
}

}  // namespace

void bind_append_attention(nb::module_& m) {
  m.def(
      "append_attention", &run_append_attention, nb::kw_only(), "q"_a, "k"_a, "v"_a, "positions"_a,
      "rope"_a, "rotate_keys"_a = true, "slots"_a, "k_pages"_a, "v_pages"_a, "pages"_a,
      "out"_a = nb::none(), "q_out"_a = nb::none(), "lse"_a = nb::none(), "mask"_a = nb::none(),
      "scale"_a = 0.f, "softcap"_a = 0.f, "dropout"_a = nb::none(), "q_offsets"_a = nb::none(),
      "rope_on_read"_a = nb::none(), "k_scales"_a = nb::none(), "v_scales"_a = nb::none(),
      "fixed_splits"_a = false, "settled"_a = false, "ctx"_a = nb::none(),
      "rotary_append() of new tokens, and attention() of their queries over the same pages, in\n"
      "one op: one kernel where a GPU decodes. Returns out, like q, and with lse=True also the "
      "lse,\n"
      "f32 [sequences, heads, tokens of each].\n\n"
      "q: [tokens, heads, dim]; k, v: [tokens, kv_heads, dim]; positions, slots: [tokens], as in\n"
      "rotary_append(). k_pages, v_pages: [pages, page_size, kv_heads, dim]. The tokens are the\n"
      "last keys of their sequences, as many for each sequence of `pages`; a ragged batch has\n"
      "q_offsets (int32 [sequences + 1]). q_out, like q, is memory for the turned queries;\n"
      "what it holds afterwards is not said. settled: all but q, k and v was written before the\n"
      "last op that does not overlap with its neighbours on a GPU.\n\n"
      ">>> q, k = numpy.ones((1, 8, 64), 'float32'), numpy.ones((1, 2, 64), 'float32')\n"
      ">>> kp, vp = numpy.zeros((2, 4, 16, 2, 64), 'float32')\n"
      ">>> pages = tessera.PageTable(numpy.int32([[3, 0, 0, 0]]), numpy.int32([1]))\n"
      ">>> rope = tessera.Rope(numpy.float32(tessera.rope_inv_freq(64)))\n"
      ">>> tessera.append_attention(q=q, k=k, v=k, positions=numpy.int64([0]), rope=rope,\n"
      "...                          slots=numpy.int32([3 * 16]), k_pages=kp, v_pages=vp,\n"
      "...                          pages=pages, mask=tessera.Mask.causal()).shape\n"
      "(1, 8, 64)");
}

}  // namespace tessera::python
