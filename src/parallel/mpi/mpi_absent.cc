// A build without MPI.
#include "core/fail.h"
#include "parallel/mpi/mpi_world.h"

namespace tessera::parallel {

MpiInfo mpi_info() {
  return {false, "not in this build (install libopenmpi-dev and openmpi-bin, then build again)"};
}

std::unique_ptr<MpiWorld> MpiWorld::start() {
  fail(ErrorCode::unsupported, "several processes need MPI, which is {}", mpi_info().text);
}

}  // namespace tessera::parallel
