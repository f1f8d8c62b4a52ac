// Draws are shared among the threads. Each thread keeps the scratch of its draws.
#include "cpu/sampling/sample_rows.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "core/rows.h"
#include "core/sample_weight.h"
#include "core/thread_pool.h"
#include "cpu/sampling/draw.h"

namespace tessera::cpu {
namespace {

std::int32_t token_of(TokenDraw& draw, std::span<const float> logits, const DrawOptions& o) {
  const float largest = draw.find_maxima(logits);
  if (std::isnan(largest) || std::isinf(largest)) return -1;
  if (o.temperature == 0) return draw.first_largest(logits, largest);
  SampleArgs args;
  args.temperature = o.temperature;
  args.top_k = o.top_k;
  args.top_p = o.top_p;
  args.min_p = o.min_p;
  return draw.draw(logits, largest, args, draw_bits(o.seed, o.draw));
}

}  // namespace

void sample_rows(Context& ctx, const SampleRowsArgs& args) {
  const Rows logits(args.logits), options(args.options);
  const std::int32_t* rows = args.rows.ptr<const std::int32_t>();
  std::int32_t* ids = args.ids.ptr<std::int32_t>();
  std::vector<TokenDraw> of_worker(static_cast<std::size_t>(ctx.threads()));
  ctx.pool().parallel_for(args.ids.numel(), [&](std::int64_t d, int worker) {
    DrawOptions o;
    std::memcpy(static_cast<void*>(&o), options.row<const std::int64_t>(d), sizeof(o));
    const bool fine = rows[d] >= 0 && rows[d] < logits.rows() &&
                      accepts_draw(o.temperature, o.top_k, o.top_p, o.min_p);
    const auto row = [&] {
      return std::span(logits.row<const float>(rows[d]), static_cast<std::size_t>(logits.cols()));
    };
    ids[d] = fine ? token_of(of_worker[static_cast<std::size_t>(worker)], row(), o) : -1;
  });
}

}  // namespace tessera::cpu
