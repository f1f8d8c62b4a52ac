#include "tessera/trace.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bind.h"

namespace tessera::python {

namespace nb = nanobind;
using namespace nb::literals;

void bind_trace(nb::module_& m) {
  nb::class_<TraceEntry>(m, "TraceEntry",
                         "All calls of one op with one kernel and these shapes.\n\n"
                         ">>> ctx = tessera.Context(trace=True)\n"
                         ">>> x = tessera.softmax(x=numpy.ones((2, 4), 'float32'), ctx=ctx)\n"
                         ">>> (entry,) = ctx.trace.entries\n"
                         ">>> entry.op, entry.calls\n('softmax', 1)")
      .def_ro("op", &TraceEntry::op)
      .def_ro("kernel", &TraceEntry::kernel)
      .def_ro("shapes", &TraceEntry::shapes)
      .def_ro("calls", &TraceEntry::calls)
      .def_ro("seconds", &TraceEntry::seconds)
      .def_ro("bytes", &TraceEntry::bytes)
      .def_ro("flops", &TraceEntry::flops)
      .def("__repr__", [](const TraceEntry& self) {
        return "TraceEntry(" + self.op + ", " + self.kernel + ", " + self.shapes +
               ", calls=" + std::to_string(self.calls) + ")";
      });
  nb::class_<Trace>(m, "Trace",
                    "Counts and times the op calls of a Context. Off by default.\n\n"
                    ">>> ctx = tessera.Context(trace=True)\n"
                    ">>> x = tessera.softmax(x=numpy.ones((2, 4), 'float32'), ctx=ctx)\n"
                    ">>> ctx.trace.calls('softmax')\n1")
      .def_prop_ro("enabled", &Trace::enabled)
      .def("enable", &Trace::enable, "on"_a = true)
      .def("clear", &Trace::clear)
      .def_prop_ro("entries", [](const Trace& self) { return self.entries(); })
      .def("calls", &Trace::calls, "op"_a, "kernel"_a = "",
           "Calls of one op; with a kernel, only those that ran on it.");
}

}  // namespace tessera::python
