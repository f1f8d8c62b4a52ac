// What each file of this folder adds to the module `tessera._native`: one for each public header
// that has something to call from Python.
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

void bind_adjust_logits(nanobind::module_& m);
void bind_append_attention(nanobind::module_& m);
void bind_attention(nanobind::module_& m);
void bind_buffer(nanobind::module_& m);
void bind_chat(nanobind::module_& m);
void bind_communicator(nanobind::module_& m);
void bind_context(nanobind::module_& m);
void bind_convert(nanobind::module_& m);
void bind_device(nanobind::module_& m);
void bind_dropout(nanobind::module_& m);
void bind_embedding(nanobind::module_& m);
void bind_engine(nanobind::module_& m);
void bind_error(nanobind::module_& m);
void bind_kv_append(nanobind::module_& m);
void bind_linear(nanobind::module_& m);
void bind_logprobs(nanobind::module_& m);
void bind_mask(nanobind::module_& m);
void bind_model(nanobind::module_& m);
void bind_norm(nanobind::module_& m);
void bind_perplexity(nanobind::module_& m);
void bind_prompt(nanobind::module_& m);
void bind_quant(nanobind::module_& m);
void bind_ring_attention(nanobind::module_& m);
void bind_rotary(nanobind::module_& m);
void bind_rotary_append(nanobind::module_& m);
void bind_sample(nanobind::module_& m);
void bind_sample_rows(nanobind::module_& m);
void bind_select(nanobind::module_& m);
void bind_softmax(nanobind::module_& m);
void bind_token_counts(nanobind::module_& m);
void bind_tokenizer(nanobind::module_& m);
void bind_trace(nanobind::module_& m);
void bind_weight(nanobind::module_& m);

}  // namespace tessera::python
