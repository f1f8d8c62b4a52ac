// sample() on a GPU: its scratch memory.
#include "cuda/sampling/sample.h"

#include "core/checked.h"
#include "core/rows.h"
#include "core/workspace.h"
#include "cuda/sampling/sample_kernels.h"

namespace tessera::cuda {
namespace {

using Key = unsigned long long;

struct Sizes {
  std::int64_t rows, parts, bins, listed_bins, listed;

  explicit Sizes(const SampleArgs& args)
      : rows(Rows(args.logits).rows()),
        parts(checked_mul(rows, sample_parts_of(args.logits.size(-1)))),
        bins(checked_mul(rows, kSampleBins)),
        listed_bins(checked_mul(rows, 2)),
        listed(checked_mul(rows, kSampleListed)) {}
};

}  // namespace

std::int64_t sample_scratch_bytes(const SampleArgs& args) {
  const Sizes sizes(args);
  ScratchSize size;
  size.add<Key>(sizes.parts).add<Key>(sizes.parts).add<Key>(sizes.bins);
  size.add<std::uint32_t>(sizes.bins);
  size.add<std::int32_t>(sizes.listed_bins).add<Key>(sizes.listed).add<std::int32_t>(sizes.rows);
  size.add<Key>(sizes.rows).add<std::int32_t>(sizes.rows);
  return size.bytes();
}

void sample(Context& ctx, const SampleArgs& args) {
  if (args.ids.numel() == 0) return;
  const Sizes sizes(args);
  Workspace::Frame frame(ctx.workspace());
  sample_rows(ctx, args,
              {.largest = frame.take<Key>(sizes.parts),
               .weights = frame.take<Key>(sizes.parts),
               .bin_weights = frame.take<Key>(sizes.bins),
               .bin_counts = frame.take<std::uint32_t>(sizes.bins),
               .listed_bins = frame.take<std::int32_t>(sizes.listed_bins),
               .listed = frame.take<Key>(sizes.listed),
               .n_listed = frame.take<std::int32_t>(sizes.rows),
               .threshold = frame.take<Key>(sizes.rows),
               .arrived = frame.take<std::int32_t>(sizes.rows)});
}

}  // namespace tessera::cuda
