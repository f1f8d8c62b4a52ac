#include "parallel_run.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "core/processors.h"
#include "model/parallel_model.h"
#include "model_options.h"
#include "parallel/nccl.h"
#include "usage_error.h"

namespace tessera::app {
namespace {

struct Split {
  bool context;  // of the sequence; else of the model
  int ranks;
};

// "tensor:4", "context:2"
Split parse_split(const std::string& parallel) {
  const std::size_t colon = parallel.find(':');
  const std::string kind = parallel.substr(0, colon);
  if (colon != std::string::npos && (kind == "tensor" || kind == "context")) {
    int ranks = 0;
    const char* end = parallel.data() + parallel.size();
    const auto [rest, error] = std::from_chars(parallel.data() + colon + 1, end, ranks);
    if (error == std::errc() && rest == end && ranks >= 1 && ranks <= 1024) {
      return {kind == "context", ranks};
    }
  }
  fail_usage("--parallel {} is neither tensor:N nor context:N with N from 1 to 1024", parallel);
}

// One GPU for each rank of the machine, in order.
Device device_of(const std::string& name, parallel::MpiWorld& world) {
  if (!find_device(name).is_cuda()) return Device::cpu();
  std::vector<Device> gpus;
  for (const DeviceInfo& info : devices()) {
    if (info.device.is_cuda() && info.usable()) gpus.push_back(info.device);
  }
  if (std::ssize(gpus) < world.ranks_on_this_machine()) {
    fail(ErrorCode::unsupported,
         "{} processes on this machine need a GPU each, and it has {}; use --device cpu or fewer",
         world.ranks_on_this_machine(), gpus.size());
  }
  return gpus[static_cast<std::size_t>(world.rank_on_this_machine())];
}

// Loads this rank's part and runs what rank 0 says.
int follow_rank_0(ModelOptions& options) {
  ParallelRun& run = *options.run;
  // mpirun hands signals to all ranks: rank 0 decides what they mean.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_IGN);
  try {
    Context ctx(context_options(options));
    const std::unique_ptr<Model> part = run.load(ctx, model_path(options), load_options(options));
    run.follow(ctx, *part);
    return 0;
  } catch (const std::exception& error) {
    run.abort(error.what());
  }
}

}  // namespace

ParallelRun::ParallelRun(const std::string& parallel, const std::string& device) {
  const auto [context, wanted] = parse_split(parallel);
  splits_context_ = context;
  const int launched = parallel::launched_ranks();
  const bool is_alone = launched == 0 && wanted == 1;  // one rank needs no mpirun
  if (launched != wanted && !is_alone) {
    fail_usage("--parallel {0} needs {1} processes, and {2} started: mpirun -n {1} tessera ...",
               parallel, wanted, launched <= 1 ? "one was" : fmt::format("{} were", launched));
  }
  world_ = is_alone ? parallel::MpiWorld::alone() : parallel::MpiWorld::start();
  device_ = device_of(device, *world_);
  if (device_.is_cpu()) return;
  Context ctx({.device = device_, .threads = 1});
  nccl_ = parallel::make_nccl(ctx, world_->communicator());
}

int ParallelRun::threads(int asked) const {
  return asked > 0 ? asked : std::max(1, usable_processors() / world_->ranks_on_this_machine());
}

std::unique_ptr<Model> ParallelRun::load(Context& ctx, const std::filesystem::path& directory,
                                         LoadOptions options) {
  (splits_context_ ? options.context_parallel : options.tensor_parallel) = &ranks();
  std::unique_ptr<Model> part = load_model(ctx, directory, options);
  if (!is_first()) return part;
  return model::lead(std::move(part), ranks(), *world_);
}

void ParallelRun::follow(Context& ctx, const Model& part) {
  model::follow(ctx, part, ranks(), *world_);
}

void ParallelRun::end_following() { model::end_following(*world_); }

void ParallelRun::abort(const std::string& sentence) {
  fmt::print(stderr, "tessera: rank {} of {}: {}\n", rank(), size(), sentence);
  std::fflush(stderr);
  world_->abort(1);
  std::abort();  // not reached
}

void add_parallel_option(CLI::App& command, ModelOptions& options) {
  command
      .add_option("--parallel", options.parallel,
                  "tensor:N splits the model over N processes, context:N a long prompt: mpirun -n "
                  "N tessera ... (docs/CLUSTER.md)")
      ->type_name("HOW");
}

Command led_by_rank_0(ModelOptions& options, Command command) {
  return [&options, command = std::move(command)] {
    if (options.parallel.empty()) return command();
    options.run = std::make_shared<ParallelRun>(options.parallel, options.device);
    if (!options.run->is_first()) {
      const int status = follow_rank_0(options);
      options.run.reset();
      return status;
    }
    try {
      const int status = command();
      options.run->end_following();
      options.run.reset();
      return status;
    } catch (...) {
      options.run->end_following();
      options.run.reset();
      throw;
    }
  };
}

}  // namespace tessera::app
