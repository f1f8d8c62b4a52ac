// sample() and sample_rows() on a GPU: their scratch memory.
#include "cuda/sampling/sample.h"

#include "core/checked.h"
#include "core/rows.h"
#include "core/workspace.h"
#include "cuda/sampling/sample_kernels.h"

namespace tessera::cuda {
namespace {

using Key = unsigned long long;

struct SampleSizes {
  std::int64_t draws, parts, bins, listed_bins, listed;

  SampleSizes(std::int64_t draw_count, std::int64_t logits)
      : draws(draw_count),
        parts(checked_mul(draws, sample_parts_of(logits))),
        bins(checked_mul(draws, kSampleBins)),
        listed_bins(checked_mul(draws, 2)),
        listed(checked_mul(draws, kSampleListed)) {}

  std::int64_t bytes() const {
    ScratchSize size;
    size.add<Key>(parts).add<Key>(parts).add<Key>(bins).add<std::uint32_t>(bins);
    size.add<std::int32_t>(listed_bins).add<Key>(listed).add<std::int32_t>(draws);
    size.add<Key>(draws).add<std::int32_t>(draws);
    return size.bytes();
  }
  SampleScratch take(Workspace::Frame& frame) const {
    return {.largest = frame.take<Key>(parts),
            .weights = frame.take<Key>(parts),
            .bin_weights = frame.take<Key>(bins),
            .bin_counts = frame.take<std::uint32_t>(bins),
            .listed_bins = frame.take<std::int32_t>(listed_bins),
            .listed = frame.take<Key>(listed),
            .n_listed = frame.take<std::int32_t>(draws),
            .threshold = frame.take<Key>(draws),
            .arrived = frame.take<std::int32_t>(draws)};
  }
};

SampleSizes sizes_of(const SampleArgs& args) {
  return {Rows(args.logits).rows(), args.logits.size(-1)};
}
SampleSizes sizes_of(const SampleRowsArgs& args) {
  return {args.ids.numel(), args.logits.size(-1)};
}

}  // namespace

std::int64_t sample_scratch_bytes(const SampleArgs& args) { return sizes_of(args).bytes(); }
std::int64_t sample_scratch_bytes(const SampleRowsArgs& args) { return sizes_of(args).bytes(); }

void sample(Context& ctx, const SampleArgs& args) {
  if (args.ids.numel() == 0) return;
  Workspace::Frame frame(ctx.workspace());
  launch_sample(ctx, args, sizes_of(args).take(frame));
}

void sample_rows(Context& ctx, const SampleRowsArgs& args) {
  if (args.ids.numel() == 0) return;
  Workspace::Frame frame(ctx.workspace());
  launch_sample_rows(ctx, args, sizes_of(args).take(frame));
}

}  // namespace tessera::cuda
