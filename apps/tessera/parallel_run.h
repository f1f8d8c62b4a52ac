// --parallel: several processes compute one model. Every rank runs the same command line; rank 0
// serves the user, the others follow it (src/model/parallel_model.h).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "commands.h"
#include "parallel/mpi/mpi_world.h"
#include "tessera/communicator.h"
#include "tessera/model.h"

namespace CLI {
class App;
}

namespace tessera::app {

struct ModelOptions;

// The ranks of this run, and how they share the work.
class ParallelRun {
 public:
  // Starts MPI, and NCCL where the device is a GPU. Refuses another number of ranks than asked for.
  ParallelRun(const std::string& parallel, const std::string& device);

  int rank() const { return world_->communicator().rank(); }
  int size() const { return world_->communicator().size(); }
  bool is_first() const { return rank() == 0; }
  bool splits_context() const { return splits_context_; }
  Device device() const { return device_; }
  // Of this rank: its share of the machine's.
  int threads(int asked) const;
  // Loads the rank's part. On rank 0 the result leads the others.
  std::unique_ptr<Model> load(Context& ctx, const std::filesystem::path& directory,
                              LoadOptions options);
  void follow(Context& ctx, const Model& part);
  void end_following();
  // Ends all ranks, with a sentence of this one.
  [[noreturn]] void abort(const std::string& sentence);

 private:
  Communicator& ranks() const { return nccl_ ? *nccl_ : world_->communicator(); }

  std::unique_ptr<parallel::MpiWorld> world_;
  std::unique_ptr<Communicator> nccl_;
  Device device_;
  bool splits_context_ = false;  // else the model
};

// --parallel
void add_parallel_option(CLI::App& command, ModelOptions& options);
// The command with --parallel: rank 0 runs it, the others load their parts and follow. `options`
// lives as long as the command. Without --parallel it is the command alone.
Command led_by_rank_0(ModelOptions& options, Command command);

}  // namespace tessera::app
