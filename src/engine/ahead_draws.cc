#include "engine/ahead_draws.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/step_row.h"

namespace tessera {
namespace {

using Kind = SampleRowsArgs::Kind;

Kind kind_of(std::span<const DrawOptions> options) {
  const auto all = [&](auto has) { return std::all_of(options.begin(), options.end(), has); };
  if (all([](const DrawOptions& o) { return o.temperature == 0; })) return Kind::greedy;
  if (all([](const DrawOptions& o) {
        return o.temperature == 0 || (o.top_k == 0 && o.top_p == 1);
      })) {
    return Kind::whole;
  }
  return Kind::any;
}

bool are_equal(std::span<const DrawOptions> a, std::span<const DrawOptions> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

}  // namespace

AheadDraws::AheadDraws(Context& ctx, std::int64_t max_rows)
    : ctx_(ctx),
      block_(ctx),
      drawn_(DType::i32, {max_rows}, ctx.device()),
      turn_(DType::i64, {1}, ctx.device()),
      copies_{{ctx, drawn_.bytes()}, {ctx, drawn_.bytes()}},
      ring_{{ctx, drawn_.bytes()}, {ctx, drawn_.bytes()}} {
  copy_bytes(ctx, turn_.data(), ctx.device(), &ring_turn_, Device::cpu(), turn_.bytes());
}

bool AheadDraws::takes(const Draw& draw) {
  return draw.drafts.empty() && draw.top_logprobs < 0 && draw.sampler->next_draw().has_value();
}

void AheadDraws::send(std::span<const Draw> draws, std::int64_t rows) {
  rows_.clear();
  options_.clear();
  for (const Draw& draw : draws) {
    rows_.push_back(static_cast<std::int32_t>(draw.row));
    DrawOptions options = draw.sampler->next_options();
    options.draw = options.temperature == 0 ? 0 : options.draw + draw.ahead;  // as next_draw() does
    options_.push_back(options);
  }
  kind_ = kind_of(options_);
  count_ = std::max(rows, std::ssize(draws));
  rows_.resize(static_cast<std::size_t>(count_), 0);
  options_.resize(static_cast<std::size_t>(count_), {.temperature = 0});
  const bool is_there =
      is_counted_ && rows_ == device_rows_ && are_equal(options_, device_options_);
  is_counted_ = false;
  if (is_there) return;
  block_.clear();
  options_at_ = block_.add(std::span<const DrawOptions>(options_));
  rows_at_ = block_.add(std::span<const std::int32_t>(rows_));
  block_.send();
  ++uploads_;
}

void AheadDraws::sample(const Tensor& logits) {
  sample_rows(ctx_, {.logits = logits,
                     .rows = block_.tensor(rows_at_, DType::i32, {count_}),
                     .options = block_.tensor(options_at_, DType::i64, {count_, kDrawOptionsWords}),
                     .ids = drawn_.tensor().slice(0, 0, count_),
                     .kind = kind_});
}

void AheadDraws::add_to_shape(std::vector<std::int64_t>& shape) const {
  shape.push_back(count_);
  shape.push_back(static_cast<std::int64_t>(kind_));
  const Tensor options = block_.tensor(options_at_, DType::i64, {count_, kDrawOptionsWords});
  shape.push_back(reinterpret_cast<std::intptr_t>(options.data));
}

void AheadDraws::add_to(AdvanceStepArgs& step) {
  step.draws = block_.writable(options_at_, DType::i64, {count_, kDrawOptionsWords});
  step.ring = {.ids = drawn_.tensor().slice(0, 0, count_),
               .turn = turn_.tensor(),
               .places = {static_cast<std::int32_t*>(ring_[0].target()),
                          static_cast<std::int32_t*>(ring_[1].target())}};
}

void AheadDraws::fetch() {
  Download& download = copies_[copies_turn_++ % 2];
  download.start(ctx_, drawn_.data(), count_ * size_of(DType::i32));
  add_under_way(download);
}

void AheadDraws::fetch_advanced() {
  Download& download = ring_[ring_turn_++ % 2];
  download.arrives(ctx_);
  add_under_way(download);
  device_rows_ = rows_;
  device_options_ = options_;
  for (DrawOptions& options : device_options_) {
    options.draw = next_draw(options.temperature, options.draw);
  }
  is_counted_ = true;
}

void AheadDraws::take(std::span<Draw> draws) {
  Download& oldest = *under_way_[0];
  under_way_[0] = std::exchange(under_way_[1], nullptr);
  const auto* ids = static_cast<const std::int32_t*>(oldest.wait(ctx_));
  for (std::size_t i = 0; i < draws.size(); ++i) {
    Draw& draw = draws[i];
    if (draw.sampler == nullptr) continue;
    draw.drawn->clear();
    if (ids[i] < 0) continue;
    draw.sampler->accept(ids[i]);
    draw.drawn->push_back({.token = {.id = ids[i], .logprob = 0}});
  }
}

}  // namespace tessera
