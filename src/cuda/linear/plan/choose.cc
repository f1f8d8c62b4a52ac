#include "cuda/linear/plan/choose.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "core/checked.h"
#include "cuda/linear/hopper/panels.h"
#include "cuda/linear/hopper/strips.h"
#include "cuda/linear/hopper/wide.h"
#include "cuda/linear/layout/tile_layout.h"
#include "cuda/linear/portable/mma.h"
#include "cuda/linear/portable/plain.h"
#include "cuda/linear/portable/stream.h"

namespace tessera::cuda {
namespace {

// Of so many rows cuda.stream is faster than cuda.strips, which does not wait for all activations
// before the first product, but starts later.
constexpr std::int64_t kStreamBest = 4;

// By the numbers that a weight in tiles has: up to how many rows cuda.strips is faster than
// cuda.panels, though it decodes weights anew for each 16 of them; from how many rows on cuda.wide
// is faster than what there is for fewer; and from how many on, where cuda.wide does not pay or
// does not take the activations, the weight is decoded once and the library multiplies: where there
// is cuda.panels, and where there is cuda.mma alone. Decoding costs what its bytes do; cuda.panels
// costs about 6 us whatever there is to do, and a tenth more for each row than the library;
// cuda.mma costs more than twice as much for each row. Measured on an H200:
// docs/results/h200/linear.md.
struct Crossover {
  std::int64_t weights, strips, wide, library, after_mma;
};
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr Crossover kCrossovers[] = {
    {.weights = 4'000'000, .strips = 128, .wide = kNever, .library = 80, .after_mma = 65},
    {.weights = 5'000'000, .strips = 128, .wide = 600, .library = 1024, .after_mma = 65},
    {.weights = 17'000'000, .strips = 48, .wide = 600, .library = 1024, .after_mma = 65},
    {.weights = 20'000'000, .strips = 16, .wide = 600, .library = 1024, .after_mma = 65},
    {.weights = 40'000'000, .strips = 16, .wide = 450, .library = 512, .after_mma = 65},
    {.weights = 120'000'000, .strips = 16, .wide = 129, .library = 1400, .after_mma = 129},
    {.weights = kNever, .strips = 16, .wide = 129, .library = 1700, .after_mma = 193},
};
// Of fewer rows than these, cuda.wide does not pay where half of its last 256 would be empty:
// cuda.panels has 128 to a block.
constexpr std::int64_t kWideAnyRows = 1024, kPanelRows = 128;

const Crossover& crossover(const Weight& weight) {
  const std::int64_t weights = checked_mul(weight.in_features, weight.out_features);
  return *std::find_if(std::begin(kCrossovers), std::end(kCrossovers),
                       [&](const Crossover& at) { return weights <= at.weights; });
}

constexpr TileKernel kWide{"cuda.wide", wide_scratch_bytes, multiply_wide};
constexpr TileKernel kPanels{"cuda.panels", panels_scratch_bytes, multiply_panels};
constexpr TileKernel kMma{"cuda.mma", mma_scratch_bytes, multiply_mma};

bool wide_pays(const Weight& weight, std::int64_t rows) {
  const bool half_empty = (rows - 1) / kPanelRows % 2 == 0;
  return rows >= crossover(weight).wide && (rows >= kWideAnyRows || !half_empty);
}

}  // namespace

const char* choose_for_weight(const Tensor& x, const Weight& weight, std::int64_t rows) {
  // A sum over nothing is no matter for the library.
  if (weight.in_features == 0) return kPlainDecode.data();
  const bool converts = weight.format != Format::dense || weight.data.dtype != x.dtype;
  return converts && rows <= kPlainRows ? kPlainDecode.data() : kLibrary.data();
}

const TileKernel* tile_kernel(Context& ctx, const Product& product, std::int64_t rows) {
  if (rows <= kPlainRows) return nullptr;
  const Crossover& at = crossover(product.weight);
  if (wide_pays(product.weight, rows) && wide_takes(ctx, product)) return &kWide;
  if (rows < at.library && panels_take(ctx, product)) return &kPanels;
  // Both products of a gated pair by cuda.panels are faster.
  const bool panels =
      product.gated() && panels_take(ctx, bare_product(product.x, product.weight, Tensor()));
  return !panels && rows < at.after_mma && mma_takes(product) ? &kMma : nullptr;
}

const char* choose(Context& ctx, const Product& product, std::int64_t rows) {
  const bool strips_pay = rows > kStreamBest && rows <= crossover(product.weight).strips;
  if (strips_pay && strips_take(ctx, product, rows)) return kStrips.data();
  const TileKernel* tiles = tile_kernel(ctx, product, rows);
  const bool streams = rows <= stream_rows_at_most(ctx, product);
  // Of so few rows cuda.panels pays where rows of W are so long that they make too few strips.
  const bool tiles_pay =
      tiles != nullptr && tiles != &kMma && pairs_of(product.weight) > kShortRowPairs;
  if (streams && !tiles_pay) return kStream.data();
  if (tiles != nullptr) return tiles->name;
  if (!product.gated()) return choose_for_weight(product.x, product.weight, rows);
  const auto choose_for = [&](const Weight& weight) {
    const TileKernel* kernel = tile_kernel(ctx, bare_product(product.x, weight, Tensor()), rows);
    return kernel != nullptr ? kernel->name : choose_for_weight(product.x, weight, rows);
  };
  const char *gate = choose_for(product.weight), *up = choose_for(product.up);
  return std::string_view(gate) == up ? gate : "cuda.mixed";
}

std::vector<std::int64_t> rows_of_other_kernels(const Product& product) {
  std::vector<std::int64_t> rows{kPlainRows};
  for (const Weight* weight : {&product.weight, &product.up}) {
    if (!weight->defined()) continue;
    const Crossover& at = crossover(*weight);
    for (const std::int64_t from : {at.wide, at.library, at.after_mma}) rows.push_back(from - 1);
  }
  for (std::int64_t of = kPanelRows; of <= kWideAnyRows; of += kPanelRows) rows.push_back(of);
  return rows;
}

}  // namespace tessera::cuda
