// MPI, which starts with its first communicator and ends with the last. It is compiled into
// programs and tests, not into the library: a user of the library needs no MPI.
//
//   mpirun -n 4 tessera generate --parallel tensor:4 ...
//
// If a rank dies, mpirun notices and ends all others.
#pragma once

#include <memory>
#include <string>

#include "parallel/control.h"
#include "tessera/communicator.h"

namespace tessera::parallel {

// "Open MPI v4.1.4 ...", or why there is none in this build.
struct MpiInfo {
  bool built = false;
  std::string text;
};
MpiInfo mpi_info();

// How many ranks mpirun, or a similar program, has started together with this one; 0: this process
// was not started by one.
int launched_ranks();

class MpiWorld : public ControlChannel {
 public:
  // Starts MPI. Throws Error (unsupported) in a build without it.
  static std::unique_ptr<MpiWorld> start();
  // One rank, without MPI: for a process that mpirun has not started.
  static std::unique_ptr<MpiWorld> alone();
  // All ranks, on CPU tensors. Lives as long as the world.
  virtual Communicator& communicator() = 0;
  virtual int ranks_on_this_machine() = 0;
  virtual int rank_on_this_machine() = 0;
};

}  // namespace tessera::parallel
