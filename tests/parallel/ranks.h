// What a test under mpirun has: the ranks, and a Context of one thread.
#pragma once

#include "parallel/mpi/mpi_world.h"
#include "tessera/communicator.h"
#include "tessera/context.h"

namespace tessera::test {

// Started by main.cc.
parallel::MpiWorld& world();
inline Communicator& ranks() { return world().communicator(); }

}  // namespace tessera::test
