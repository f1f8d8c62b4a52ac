#include "tessera/context.h"

#include <nanobind/stl/string.h>

#include <string>

#include "bind.h"
#include "call.h"
#include "contexts.h"
#include "forks.h"
#include "names.h"

namespace tessera::python {

using namespace nb::literals;

namespace {

Activations parse_activations(const std::string& text) {
  if (text == "exact") return Activations::exact;
  if (text == "int8") return Activations::int8;
  refuse("activations '" + text + "' is not known; give one of: exact, int8");
}

const char* activations_name(const Context& ctx) {
  return ctx.activations() == Activations::exact ? "exact" : "int8";
}

void make_context(nb::pointer_and_handle<Context> self, const std::string& device, int threads,
                  const std::string& activations, bool trace, const Context* share_threads_with,
                  bool graphs) {
  new (self.p) Context(ContextOptions{.device = parse_device(device),
                                      .threads = threads,
                                      .share_threads_with = share_threads_with,
                                      .activations = parse_activations(activations),
                                      .trace = trace,
                                      .graphs = graphs});
  note_threads_of(self.h);
}

}  // namespace

void bind_context(nb::module_& m) {
  nb::class_<Context>(
      m, "Context", nb::is_weak_referenceable(),
      "Everything an op needs besides its tensors: device, stream, threads,\n"
      "scratch memory, trace. For one thread at a time. Ops that are given none use\n"
      "the thread's own, `default_context(device)`.\n\n"
      ">>> ctx = tessera.Context('cpu', threads=2, activations='int8')\n"
      ">>> x = tessera.softmax(x=numpy.ones((2, 4), 'float32'), ctx=ctx)")
      .def("__init__", &make_context, "device"_a = "cpu", nb::kw_only(), "threads"_a = 0,
           "activations"_a = "exact", "trace"_a = false, "share_threads_with"_a = nb::none(),
           "graphs"_a = true,
           "activations: how the CPU multiplies packed weights. exact: with f32 activations;\n"
           "int8: rounded to 8 bits in blocks of 32, which is faster. graphs: on a GPU, repeated\n"
           "steps of a model run as CUDA graphs.\n\n"
           ">>> ctx = tessera.Context('cpu', threads=2, trace=True)")
      .def_prop_ro("device", [](const Context& self) { return to_string(self.device()); })
      .def_prop_ro("threads", &Context::threads)
      .def_prop_ro("trace", nb::overload_cast<>(&Context::trace), nb::rv_policy::reference_internal)
      .def_prop_rw("activations", &activations_name,
                   [](Context& self, const std::string& text) {
                     self.set_activations(parse_activations(text));
                   })
      .def_prop_ro(
          "stream",
          [](const Context& self) { return reinterpret_cast<std::uintptr_t>(self.stream()); },
          "The address of its CUDA stream; 0 on the CPU.")
      .def_prop_ro("workspace_bytes", &Context::workspace_bytes)
      .def("synchronize", &Context::synchronize, nb::call_guard<nb::gil_scoped_release>(),
           "Waits for all work of a GPU's Context.");
  m.def(
      "default_context",
      [](const std::string& device) -> Context& { return default_context(parse_device(device)); },
      "device"_a = "cpu", nb::rv_policy::reference,
      "The Context that ops of the calling thread use where none is given.\n\n"
      ">>> tessera.default_context().device\n'cpu'");
}

}  // namespace tessera::python
