// Several processes: how fast they generate together, and attention around the ring. Every rank
// runs it; rank 0 prints one JSON object.
//
//   mpirun -n 2 bench_parallel generate --shape bench/shapes/pythia-160m.json --weights int4
//   mpirun -n 2 bench_parallel ring --tokens 8192
//
// Without mpirun it is one rank, with --threads threads: the baseline for the others.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/philox.h"
#include "cpu/simd/peak_rate.h"
#include "model/architectures/config.h"
#include "model/checkpoint/mapped_file.h"
#include "model/checkpoint/random_weights.h"
#include "model/parallel_model.h"
#include "parallel/mpi/mpi_world.h"
#include "profile/ceilings.h"
#include "tessera/buffer.h"
#include "tessera/generate.h"
#include "tessera/ring_attention.h"

namespace tessera::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string shape, weights = "dense";
  int threads = 1, repeat = 5;
  std::int64_t prompt = 16, generate = 48, tokens = 8192, heads = 12, dim = 64;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Ops of which each rank does its part. All other work of a token is done whole by every rank, or
// by rank 0 while the others wait: norms, the embedding, the draw, the host between ops.
constexpr std::string_view kSplitOps[] = {"linear", "gated_linear", "attention", "append_attention",
                                          "rotary_append"};

// Seconds in split ops while this many tokens are generated.
double traced_seconds(Context& ctx, const Model& model, KvCache& cache,
                      std::span<const std::int32_t> prompt, std::int64_t tokens) {
  GenerateOptions generation{.max_tokens = tokens, .ignore_eos = true};
  generation.sampling.greedy = true;
  cache.clear();
  ctx.trace().clear();
  ctx.trace().enable();
  generate(ctx, model, cache, nullptr, prompt, generation);
  ctx.trace().enable(false);
  double seconds = 0;
  for (const TraceEntry& entry : ctx.trace().entries()) {
    const bool is_split =
        std::find(std::begin(kSplitOps), std::end(kSplitOps), entry.op) != std::end(kSplitOps);
    seconds += is_split ? entry.seconds : 0;
  }
  return seconds;
}

// The time of a sum over the ranks of one token's row. Every rank calls it.
double sum_seconds(Context& ctx, Communicator& ranks, std::int64_t hidden) {
  const Buffer row(DType::f32, {1, hidden}, Device::cpu());
  std::fill_n(row.tensor().ptr<float>(), hidden, 0.f);
  std::vector<double> seconds;
  for (int i = 0; i < 50; ++i) {
    ranks.barrier(ctx);
    const Clock::time_point start = Clock::now();
    for (int k = 0; k < 10; ++k) ranks.all_reduce(ctx, row.tensor());
    seconds.push_back(seconds_since(start) / 10);
  }
  return median(std::move(seconds));
}

// Bytes a second that each rank reads while the others read too: the ranks of one machine share its
// memory. Every rank calls it.
double read_rate(Context& ctx, Communicator& ranks) {
  constexpr std::int64_t kWords = profile::kAllOfMemory / 8;
  const Buffer buffer(8 * kWords);
  auto* memory = static_cast<std::uint64_t*>(buffer.data());
  std::fill_n(memory, kWords, 1u);
  std::vector<double> seconds;
  for (int i = 0; i < 15; ++i) {
    ranks.barrier(ctx);
    const Clock::time_point start = Clock::now();
    if (cpu::sum_memory(memory, kWords) != static_cast<std::uint64_t>(kWords)) std::abort();
    seconds.push_back(seconds_since(start));
  }
  return static_cast<double>(8 * kWords) / median(std::move(seconds));
}

// The bytes of the weights that a token reads.
std::int64_t token_bytes(const Model& model) {
  std::int64_t bytes = 0;
  for (const LayerInfo& layer : model.linear_layers()) bytes += layer.weight.bytes();
  return bytes;
}

nlohmann::json generate_report(Context& ctx, const Options& options, const ModelConfig& config,
                               const Model& model) {
  std::vector<std::int32_t> prompt;
  for (std::int64_t i = 0; i < options.prompt; ++i) {
    prompt.push_back(static_cast<std::int32_t>((7919 * i + 13) % config.vocab));
  }
  KvCache cache = model.make_cache(ctx, CachePolicy::full(), options.prompt + options.generate);
  std::vector<double> seconds;
  std::vector<std::int32_t> ids;
  for (int i = 0; i < options.repeat; ++i) {
    cache.clear();
    GenerateOptions generation{.max_tokens = options.generate, .ignore_eos = true};
    generation.sampling.greedy = true;
    const GenerateResult result = generate(ctx, model, cache, nullptr, prompt, generation);
    seconds.push_back(result.decode_seconds / static_cast<double>(options.generate - 1));
    ids = result.ids;
  }
  std::vector<double> split;  // of a token: two runs differ by all tokens but one
  for (int i = 0; i < options.repeat; ++i) {
    split.push_back((traced_seconds(ctx, model, cache, prompt, options.generate) -
                     traced_seconds(ctx, model, cache, prompt, 1)) /
                    static_cast<double>(options.generate - 1));
  }
  // Of a layer, and of the embedding.
  const std::int64_t sums = config.layers * (config.parallel_residual ? 1 : 2) + 1;
  return {{"what", "generate"},
          {"weights", options.weights},
          {"sums", sums},
          {"ms_per_token", 1e3 * median(seconds)},
          {"split_ms", 1e3 * median(std::move(split))},
          {"ms_fastest", 1e3 * *std::min_element(seconds.begin(), seconds.end())},
          {"ms_slowest", 1e3 * *std::max_element(seconds.begin(), seconds.end())},
          {"weight_bytes", model.weight_bytes()},
          {"token_bytes", token_bytes(model)},
          {"cache_bytes", cache.bytes()},
          {"ids", ids}};
}

nlohmann::json run_generate(Context& ctx, const Options& options, parallel::MpiWorld* world,
                            Communicator& ranks) {
  const model::MappedFile file(options.shape);
  ModelConfig config = model::parse_model_config(file.text(), options.shape);
  config.stored_dtype = DType::f32;
  model::RandomModelOptions random{.tensor_parallel = &ranks};
  if (options.weights != "dense") {
    const Format format = parse_format(options.weights);
    random.pack = QuantizeOptions{.format = format,
                                  .group = format == Format::int4 ? 32 : -1,
                                  .search = ScaleSearch::from_max};
  }
  auto part = model::make_random_model(ctx, config, random);
  const double sum = sum_seconds(ctx, ranks, config.hidden), rate = read_rate(ctx, ranks);
  if (ranks.rank() != 0) {
    model::follow(ctx, *part, ranks, *world);
    return {};
  }
  if (ranks.size() == 1) return generate_report(ctx, options, config, *part);
  const auto leading = model::lead(std::move(part), ranks, *world);
  nlohmann::json report = generate_report(ctx, options, config, *leading);
  report["sum_us"] = 1e6 * sum;
  report["read_gb_per_s"] = 1e-9 * rate;
  model::end_following(*world);
  return report;
}

nlohmann::json run_ring(Context& ctx, const Options& options, Communicator& ranks) {
  const RingLayout layout = ring_layout(options.tokens, ranks.size(), Mask::causal());
  const std::int64_t rows = layout.rows(ranks.rank());
  std::vector<Buffer> buffers;
  for (int i = 0; i < 4; ++i) {
    buffers.emplace_back(DType::f32,
                         std::initializer_list<std::int64_t>{1, rows, options.heads, options.dim});
    const Tensor tensor = buffers.back().tensor();
    for (std::int64_t k = 0; k < tensor.numel(); ++k) {
      const PhiloxWords words =
          philox(static_cast<std::uint64_t>(i), {static_cast<std::uint32_t>(k), 0, 0, 0});
      tensor.ptr<float>()[k] = static_cast<float>(words[0]) * 0x1p-31f - 1.f;
    }
  }
  const RingAttentionArgs args{.tokens = options.tokens,
                               .q = buffers[0].tensor(),
                               .k = buffers[1].tensor(),
                               .v = buffers[2].tensor(),
                               .out = buffers[3].tensor(),
                               .mask = Mask::causal()};
  std::vector<double> seconds;
  for (int i = 0; i < options.repeat; ++i) {
    ranks.barrier(ctx);
    const Clock::time_point start = Clock::now();
    ring_attention(ctx, ranks, args);
    ranks.barrier(ctx);
    seconds.push_back(seconds_since(start));
  }
  return {{"what", "ring"},
          {"tokens", options.tokens},
          {"ms", 1e3 * median(seconds)},
          {"ms_fastest", 1e3 * *std::min_element(seconds.begin(), seconds.end())},
          {"ms_slowest", 1e3 * *std::max_element(seconds.begin(), seconds.end())}};
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Several processes: generation and attention around the ring");
  app.require_subcommand(1);
  CLI::App* generate = app.add_subcommand("generate", "Tensor parallelism, random weights");
  generate->add_option("--shape", options.shape, "config.json of the model")->required();
  generate->add_option("--weights", options.weights, "dense, or a packed format");
  generate->add_option("--prompt", options.prompt);
  generate->add_option("--generate", options.generate);
  CLI::App* ring = app.add_subcommand("ring", "Causal attention in f32");
  ring->add_option("--tokens", options.tokens);
  ring->add_option("--heads", options.heads);
  ring->add_option("--dim", options.dim);
  for (CLI::App* command : {generate, ring}) {
    command->add_option("--threads", options.threads, "Threads of each rank");
    command->add_option("--repeat", options.repeat);
  }
  CLI11_PARSE(app, argc, argv);

  std::unique_ptr<parallel::MpiWorld> world;
  if (parallel::launched_ranks() > 0) world = parallel::MpiWorld::start();
  const std::unique_ptr<Communicator> alone = one_rank();
  Communicator& ranks = world ? world->communicator() : *alone;
  Context ctx({.threads = options.threads, .activations = Activations::int8});
  nlohmann::json report = ring->parsed() ? run_ring(ctx, options, ranks)
                                         : run_generate(ctx, options, world.get(), ranks);
  if (ranks.rank() != 0) return 0;
  report["ranks"] = ranks.size();
  report["threads"] = options.threads;
  fmt::print("{}\n", report.dump());
  return 0;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  try {
    return tessera::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_parallel: %s\n", error.what());
    return 1;
  }
}
