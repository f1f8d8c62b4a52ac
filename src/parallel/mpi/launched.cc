// The part that needs no MPI: whether it was asked for, and a world of one process.
#include <cstdlib>

#include "core/fail.h"
#include "parallel/mpi/mpi_world.h"

namespace tessera::parallel {
namespace {

class Alone final : public MpiWorld {
 public:
  Communicator& communicator() override { return *communicator_; }
  int ranks_on_this_machine() override { return 1; }
  int rank_on_this_machine() override { return 0; }
  void send_bytes(void*, std::int64_t) override {}  // nobody follows
  void receive_bytes(void*, std::int64_t) override {
    fail(ErrorCode::invalid_argument, "a process alone receives no messages");
  }
  void abort(int status) override { std::_Exit(status); }

 private:
  std::unique_ptr<Communicator> communicator_ = one_rank();
};

}  // namespace

int launched_ranks() {
  // Open MPI; MPICH and its relatives; Slurm.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return 0;
}

std::unique_ptr<MpiWorld> MpiWorld::alone() { return std::make_unique<Alone>(); }

}  // namespace tessera::parallel
