#include "cpu/sampling/adjust.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>

#include "core/penalty.h"
#include "core/rows.h"
#include "cpu/elementwise/for_each_row.h"

namespace tessera::cpu {
namespace {

void add_bias(const AdjustLogitsArgs& args, std::int64_t d, std::span<const float> logits,
              std::span<float> out) {
  const std::int32_t* begin = args.bias_begin.ptr<const std::int32_t>();
  const std::int64_t last = std::min<std::int64_t>(begin[d + 1], args.bias.numel());
  for (std::int64_t e = std::max<std::int64_t>(begin[d], 0); e < last; ++e) {
    const std::int64_t id = args.bias_ids.ptr<const std::int32_t>()[e];
    if (id < 0 || id >= std::ssize(out)) continue;
    const std::size_t i = static_cast<std::size_t>(id);
    out[i] = logits[i] + args.bias.ptr<const float>()[e];
  }
}

void penalise(std::span<float> logits, const std::int32_t* counts, const Penalties& p) {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (counts[i] == 0) continue;
    logits[i] =
        penalised_logit(logits[i], p.repetition, p.presence, p.frequency, counts[i] & ~kInPrompt);
  }
}

}  // namespace

void adjust_logits(Context& ctx, const AdjustLogitsArgs& args) {
  const Rows logits(args.logits), penalties(args.penalties), counts(args.counts), out(args.out);
  const std::size_t n = static_cast<std::size_t>(out.cols());
  for_each_row(ctx.pool(), out.rows(), out.cols(), [&](std::int64_t d, int) {
    const std::span<float> to(out.row<float>(d), n);
    const std::int64_t row = args.rows.ptr<const std::int32_t>()[d];
    if (row < 0 || row >= logits.rows()) {
      return std::fill(to.begin(), to.end(), std::numeric_limits<float>::quiet_NaN());
    }
    const std::span<const float> from(logits.row<const float>(row), n);
    std::copy(from.begin(), from.end(), to.begin());
    if (args.bias_begin.defined()) add_bias(args, d, from, to);
    if (!args.slots.defined()) return;
    const std::int64_t slot = args.slots.ptr<const std::int32_t>()[d];
    if (slot < 0 || slot >= counts.rows()) return;
    Penalties p;
    std::memcpy(static_cast<void*>(&p), penalties.row<const std::int64_t>(d), sizeof(p));
    penalise(to, counts.row<const std::int32_t>(slot), p);
  });
}

void fill_counts(const FillCountsArgs& args) {
  const Rows counts(args.counts);
  std::int32_t* const slot = counts.row<std::int32_t>(args.slot);
  std::fill_n(slot, counts.cols(), 0);
  const std::int64_t size = args.ids.defined() ? args.ids.numel() : 0;
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t id = args.ids.ptr<const std::int32_t>()[i];
    if (id < 0 || id >= counts.cols()) continue;
    slot[id] = args.values.defined() ? args.values.ptr<const std::int32_t>()[i] : kInPrompt;
  }
}

void count_tokens(const CountTokensArgs& args) {
  const Rows counts(args.counts);
  for (std::int64_t d = 0; d < args.ids.numel(); ++d) {
    const std::int64_t id = args.ids.ptr<const std::int32_t>()[d];
    const std::int64_t slot = args.slots.ptr<const std::int32_t>()[d];
    if (id < 0 || id >= counts.cols() || slot < 0 || slot >= counts.rows()) continue;
    ++counts.row<std::int32_t>(slot)[id];
  }
}

}  // namespace tessera::cpu
