// From a folder to a Model: config, checkpoint, architecture. Weights that do not fit are refused
// before the first of them is loaded.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/as_error.h"
#include "core/available_memory.h"
#include "core/fail.h"
#include "core/workspace.h"
#include "model/architectures/registry.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/checkpoint_weights.h"
#include "model/checkpoint/weight_counter.h"
#include "model/memory_refusal.h"
#include "model/model_dtype.h"
#include "quant/format_table.h"
#include "tessera/model.h"

namespace tessera {

namespace {

using SharedCheckpoint = std::shared_ptr<const model::Checkpoint>;

// One way to load a checkpoint, and the memory it takes.
struct Way {
  std::string flags;
  DType dtype;
  LoadOptions options;
  std::int64_t weights = 0, loading = 0;

  std::int64_t bytes() const { return weights + loading; }
};

Way counted(Context& ctx, const SharedCheckpoint& checkpoint, const ModelConfig& config, Way way) {
  way.options.progress = {};
  model::WeightCounter counter(ctx, checkpoint, way.dtype, way.options);
  counter.set_ranks(way.options.tensor_parallel);
  model::make_model(config, way.dtype, counter);
  way.weights = counter.taken();
  way.loading = counter.loading();
  return way;
}

// The ways that need less memory than `chosen`, from large to small.
std::vector<model::WeightsRequest::Other> smaller_ways(Context& ctx,
                                                       const SharedCheckpoint& checkpoint,
                                                       const ModelConfig& config,
                                                       const Way& chosen) {
  std::vector<Way> ways;
  if (size_of(config.stored_dtype) < size_of(chosen.dtype)) {
    ways.push_back({.flags = fmt::format("--dtype {}", name(config.stored_dtype)),
                    .dtype = config.stored_dtype,
                    .options = chosen.options});
  }
  for (const quant::FormatEntry& entry : quant::packed_formats()) {
    if (!entry.suggested) continue;
    Way way{.flags = fmt::format("--weights {}", entry.info.name),
            .dtype = chosen.dtype,
            .options = chosen.options};
    way.options.pack = QuantizeOptions{.format = entry.info.format};
    ways.push_back(way);
  }
  for (Way& way : ways) way = counted(ctx, checkpoint, config, way);
  std::stable_sort(ways.begin(), ways.end(),
                   [](const Way& a, const Way& b) { return a.bytes() > b.bytes(); });
  std::vector<model::WeightsRequest::Other> others;
  std::int64_t least = chosen.bytes();
  for (const Way& way : ways) {
    if (way.bytes() >= least) continue;
    least = way.bytes();
    others.push_back({way.flags, way.bytes()});
  }
  return others;
}

std::unique_ptr<Model> load_checked(Context& ctx, const SharedCheckpoint& checkpoint,
                                    const LoadOptions& options) {
  const ModelConfig config = read_model_config(checkpoint->directory());
  const DType dtype = model::model_dtype(ctx, config, options.dtype);
  const std::int64_t workspace_before = ctx.workspace_bytes();
  const Way chosen = counted(ctx, checkpoint, config, {"", dtype, options});
  const auto request = [&] {
    return model::WeightsRequest{
        .memory = available_memory(ctx), .weights = chosen.weights, .loading = chosen.loading};
  };
  const auto refuse = [&](const std::string& reason) {
    model::WeightsRequest refused = request();
    refused.others = smaller_ways(ctx, checkpoint, config, chosen);
    throw Error(ErrorCode::out_of_memory, model::refusal(refused) + reason);
  };
  if (!request().fits()) refuse("");
  try {
    model::CheckpointWeights weights(ctx, checkpoint, dtype, options);
    weights.set_ranks(options.tensor_parallel);
    weights.set_context_ranks(options.context_parallel);
    weights.set_fuses_layers(options.fuse_layers);
    std::unique_ptr<Model> model = model::make_model(config, dtype, weights);
    // Packing a layer can take more than any step of a stream will.
    if (ctx.workspace_bytes() > workspace_before) ctx.workspace().release();
    return model;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
    refuse(fmt::format(" ({})", error.what()));  // another program took it meanwhile
    throw;
  }
}

}  // namespace

std::unique_ptr<Model> load_model(Context& ctx, const std::filesystem::path& directory,
                                  const LoadOptions& options) {
  return as_error(fmt::format("loading {}", directory.string()), [&] {
    const SharedCheckpoint checkpoint = model::Checkpoint::open(directory, options.files);
    try {
      std::unique_ptr<Model> model = load_checked(ctx, checkpoint, options);
      checkpoint->check_unchanged();
      return model;
    } catch (const Error&) {
      checkpoint->check_unchanged();  // a changed file is the reason of any other error
      throw;
    }
  });
}

}  // namespace tessera
