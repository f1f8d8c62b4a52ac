// The extension module tessera._native. The package re-exports what users call.
#include "bind.h"
#include "contexts.h"
#include "forks.h"
#include "tessera/version.h"

NB_MODULE(_native, m) {
  using namespace tessera::python;
  m.doc() = "Tessera's ops, models and engine, as the C++ headers have them.";
  nanobind::set_leak_warnings(false);  // libraries that end after us hold masks and weights
  m.attr("__version__") = tessera::version();
  m.def(
      "_leave_threads_to_the_parent",
      [] {
        forget_default_contexts();
        keep_objects_with_threads();
      },
      "In the child of a fork: the parent's threads are gone.");
  // Types first: they are the defaults and the results of what follows.
  bind_error(m);
  bind_device(m);
  bind_trace(m);
  bind_context(m);
  bind_buffer(m);
  bind_dropout(m);
  bind_mask(m);
  bind_weight(m);
  bind_quant(m);
  bind_rotary(m);
  bind_attention(m);
  bind_communicator(m);
  bind_ring_attention(m);
  bind_linear(m);
  bind_norm(m);
  bind_rotary_append(m);
  bind_append_attention(m);
  bind_kv_append(m);
  bind_embedding(m);
  bind_softmax(m);
  bind_convert(m);
  bind_select(m);
  bind_sample(m);
  bind_sample_rows(m);
  bind_adjust_logits(m);
  bind_token_counts(m);
  bind_logprobs(m);
  bind_tokenizer(m);
  bind_model(m);
  bind_prompt(m);
  bind_chat(m);
  bind_engine(m);
  bind_perplexity(m);
}
