#include <cstdlib>

#include "parallel/mpi/mpi_world.h"

namespace tessera::parallel {

int launched_ranks() {
  // Open MPI; MPICH and its relatives; Slurm.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return 0;
}

}  // namespace tessera::parallel
