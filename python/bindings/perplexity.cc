#include "tessera/perplexity.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>

#include "bind.h"
#include "names.h"

namespace tessera::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Streaming = std::optional<std::pair<std::int64_t, std::int64_t>>;

PerplexityResult run_perplexity(Context& ctx, const Model& model,
                                const std::vector<std::int32_t>& ids, std::int64_t context,
                                std::int64_t stride, std::int64_t bos, const Streaming& streaming,
                                const std::optional<std::string>& cache_dtype) {
  std::atomic<bool> cancel = false;
  bool interrupted = false;
  PerplexityOptions options{.context = context, .stride = stride, .bos = bos};
  if (cache_dtype) options.cache_dtype = parse_cache_dtype(*cache_dtype);
  options.cancel = &cancel;
  options.progress = [&](std::int64_t, std::int64_t) {
    const nb::gil_scoped_acquire acquired;
    if (!interrupted && PyErr_CheckSignals() != 0) {
      interrupted = true;
      cancel = true;
    }
  };
  PerplexityResult result;
  {
    const nb::gil_scoped_release released;
    if (streaming) {
      const CachePolicy policy = streaming->first > 0
                                     ? CachePolicy::sinks(streaming->first, streaming->second)
                                     : CachePolicy::last(streaming->second);
      KvCache cache = model.make_cache(ctx, policy, 0, 256, 256, options.cache_dtype);
      result = stream_perplexity(ctx, model, cache, ids, options);
    } else {
      result = perplexity(ctx, model, ids, options);
    }
  }
  if (interrupted) throw nb::python_error();
  return result;
}

}  // namespace

void bind_perplexity(nb::module_& m) {
  nb::class_<PerplexityResult>(
      m, "PerplexityResult",
      "How well a model predicts a text: nll and ppl with their standard errors,\n"
      "nlls of each token at its position.\n\n"
      ">>> result = tessera.perplexity(None, 'Once upon a time there was a cat.')\n"
      ">>> result.tokens == len(result.nlls), 1 < result.ppl < 1000\n"
      "(True, True)")
      .def_ro("tokens", &PerplexityResult::tokens)
      .def_ro("chunks", &PerplexityResult::chunks)
      .def_ro("nll", &PerplexityResult::nll)
      .def_ro("nll_error", &PerplexityResult::nll_error)
      .def_ro("ppl", &PerplexityResult::ppl)
      .def_ro("ppl_error", &PerplexityResult::ppl_error)
      .def_ro("nlls", &PerplexityResult::nlls)
      .def_ro("positions", &PerplexityResult::positions);
  m.def("measure_perplexity", &run_perplexity, "ctx"_a, "model"_a, "ids"_a, nb::kw_only(),
        "context"_a = 0, "stride"_a = 0, "bos"_a = -1, "streaming"_a = nb::none(),
        "cache_dtype"_a = nb::none());
}

}  // namespace tessera::python
