#include "tessera/communicator.h"

#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>

#include "bind.h"

namespace tessera::python {

namespace nb = nanobind;

void bind_communicator(nb::module_& m) {
  nb::class_<Communicator>(
      m, "Communicator",
      "The processes that compute one model together. A process is a rank.\n\n"
      "Python has one_rank(), a process that computes alone. Those of MPI and NCCL are C++ only:\n"
      "`tessera generate --parallel` and `tessera serve --parallel` start them.\n\n"
      ">>> alone = tessera.one_rank()\n"
      ">>> alone.rank, alone.size, alone.name\n(0, 1, 'one rank')")
      .def_prop_ro("rank", &Communicator::rank, "Which of the processes this one is.")
      .def_prop_ro("size", &Communicator::size, "How many there are.")
      .def_prop_ro("name", &Communicator::name);
  m.def("one_rank", &one_rank,
        "The Communicator of a process that computes alone: nothing is sent.\n\n"
        ">>> tessera.one_rank().size\n1");
}

}  // namespace tessera::python
