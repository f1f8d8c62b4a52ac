#include "engine/device_draws.h"

#include <algorithm>
#include <bit>
#include <tuple>

#include "core/checked.h"
#include "tessera/logprobs.h"
#include "tessera/token_counts.h"

namespace tessera {
namespace {

constexpr std::int64_t kMostAdjusted = 32;  // rows at a time, which bounds their memory

bool is_adjusted(const Sampler& sampler) {
  return sampler.has_penalties() || !sampler.options().logit_bias.empty();
}

// Plain ones before adjusted ones, and those that ask for log-probabilities side by side.
int group_of(const Draw& draw) {
  if (is_adjusted(*draw.sampler)) return draw.top_logprobs >= 0 ? 2 : 3;
  return draw.top_logprobs >= 0 ? 1 : 0;
}

template <typename T>
std::span<const T> all_of(const std::vector<T>& items) {
  return items;
}

}  // namespace

DeviceDraws::DeviceDraws(Context& ctx, std::int64_t vocab, std::int64_t max_rows)
    : ctx_(ctx), vocab_(vocab), max_rows_(max_rows), slots_(ctx, vocab), block_(ctx) {
  for (std::int32_t i = 0; i < kMostAdjusted; ++i) numbers_.push_back(i);
}

void DeviceDraws::draw(const Tensor& logits, std::span<Draw> draws) {
  collect_first(draws);
  while (!items_.empty()) {
    run(logits, draws);
    take(draws);
    collect_next(draws);
  }
}

// ---- what is drawn in a round -------------------------------------------------------------------

// The rows of a draw with drafts are independent of each other, and are drawn from at once. Only
// penalties change from row to row: then each row is a round.
void DeviceDraws::collect_first(std::span<Draw> draws) {
  items_.clear();
  places_.assign(draws.size(), {});
  const auto penalised = std::count_if(
      draws.begin(), draws.end(), [](const Draw& draw) { return draw.sampler->has_penalties(); });
  slots_.begin(penalised);
  for (std::size_t d = 0; d < draws.size(); ++d) {
    draws[d].drawn->clear();
    const bool one_by_one = draws[d].sampler->has_penalties();
    add_items(draws, d, 0, one_by_one ? 1 : 1 + std::ssize(draws[d].drafts));
  }
}

void DeviceDraws::collect_next(std::span<Draw> draws) {
  items_.clear();
  places_.assign(draws.size(), {});
  for (const std::size_t d : going_on_) add_items(draws, d, std::ssize(*draws[d].drawn), 1);
}

void DeviceDraws::add_items(std::span<const Draw> draws, std::size_t draw, std::int64_t from,
                            std::int64_t count) {
  const Draw& of = draws[draw];
  if (of.top_logprobs > kMostTop) return;
  const std::int32_t slot = of.sampler->has_penalties() ? slots_.slot_of(of) : -1;
  DrawOptions options = of.sampler->next_options();
  for (std::int64_t i = 0; i < count; ++i, ++options.draw) {
    items_.push_back({.draw = draw,
                      .row = static_cast<std::int32_t>(of.row + from + i),
                      .slot = slot,
                      .group = group_of(of),
                      .options = options});
  }
}

// ---- a round ------------------------------------------------------------------------------------

void DeviceDraws::upload(std::span<const Draw> draws) {
  rows_.clear();
  options_.clear();
  slot_numbers_.clear();
  penalties_.clear();
  bias_ids_.clear();
  bias_.clear();
  bias_begin_.assign(1, 0);
  for (const Item& item : items_) {
    rows_.push_back(item.row);
    options_.push_back(item.options);
    slot_numbers_.push_back(item.slot);
    if (item.group < 2) continue;
    const SamplingOptions& o = draws[item.draw].sampler->options();
    penalties_.push_back({o.repetition_penalty, o.presence_penalty, o.frequency_penalty});
    for (const auto& [id, bias] : o.logit_bias) {
      bias_ids_.push_back(id);
      bias_.push_back(bias);
    }
    bias_begin_.push_back(static_cast<std::int32_t>(bias_ids_.size()));
  }
  block_.clear();
  at_.rows = block_.add(all_of(rows_));
  at_.options = block_.add(all_of(options_));
  at_.slots = block_.add(all_of(slot_numbers_));
  at_.numbers = block_.add(all_of(numbers_));
  at_.penalties = block_.add(all_of(penalties_));
  at_.bias_begin = block_.add(all_of(bias_begin_));
  at_.bias_ids = block_.add(all_of(bias_ids_));
  at_.bias = block_.add(all_of(bias_));
  block_.send();
}

void DeviceDraws::run(const Tensor& logits, std::span<const Draw> draws) {
  std::sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) {
    return std::tuple(a.group, a.draw, a.row) < std::tuple(b.group, b.draw, b.row);
  });
  plain_ = first_reported_ = reported_ = top_ = 0;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    const Item& item = items_[i];
    Place& place = places_[item.draw];
    if (place.count++ == 0) place.first = i;
    if (item.group < 2) ++plain_;
    if (item.group == 0) ++first_reported_;
    if (item.group == 1 || item.group == 2) {
      ++reported_;
      top_ = std::max(top_, draws[item.draw].top_logprobs);
    }
  }
  upload(draws);
  const std::int64_t count = std::ssize(items_);
  const std::int64_t numbers = count + reported_ + 2 * reported_ * top_;
  if (results_.bytes() < numbers * size_of(DType::i32)) {
    results_ = Buffer(DType::i32, {2 * numbers}, ctx_.device());
    host_results_.resize(static_cast<std::size_t>(2 * numbers));
  }
  sample_plain(logits);
  sample_adjusted(logits);
  report(logits, top_);
  copy_bytes(ctx_, host_results_.data(), Device::cpu(), results_.data(), ctx_.device(),
             numbers * size_of(DType::i32));
}

Tensor DeviceDraws::results(std::int64_t place, DType dtype,
                            std::initializer_list<std::int64_t> shape) const {
  return {static_cast<std::int32_t*>(results_.data()) + place, dtype, shape, ctx_.device()};
}

void DeviceDraws::sample_plain(const Tensor& logits) {
  const std::int64_t count = std::ssize(items_);
  const Tensor rows = block_.tensor(at_.rows, DType::i32, {count});
  const Tensor options = block_.tensor(at_.options, DType::i64, {count, kDrawOptionsWords});
  const Tensor ids = results(0, DType::i32, {count});
  for (std::int64_t begin = 0; begin < plain_; begin += max_rows_) {
    const std::int64_t end = std::min(begin + max_rows_, plain_);
    sample_rows(ctx_, {.logits = logits,
                       .rows = rows.slice(0, begin, end),
                       .options = options.slice(0, begin, end),
                       .ids = ids.slice(0, begin, end)});
  }
}

void DeviceDraws::sample_adjusted(const Tensor& logits) {
  const std::int64_t count = std::ssize(items_), adjusted = count - plain_;
  if (adjusted == 0) return;
  const std::int64_t most = std::min(max_rows_, kMostAdjusted);
  if (adjusted_.bytes() == 0) adjusted_ = Buffer(DType::f32, {most, vocab_}, ctx_.device());
  const Tensor rows = block_.tensor(at_.rows, DType::i32, {count});
  const Tensor options = block_.tensor(at_.options, DType::i64, {count, kDrawOptionsWords});
  const Tensor slots = block_.tensor(at_.slots, DType::i32, {count});
  const Tensor penalties = block_.tensor(at_.penalties, DType::i64, {adjusted, kPenaltiesWords});
  const Tensor bias_begin = block_.tensor(at_.bias_begin, DType::i32, {adjusted + 1});
  const std::int64_t entries = std::ssize(bias_);
  const bool with_penalties =
      std::any_of(items_.begin(), items_.end(), [](const Item& item) { return item.slot >= 0; });
  for (std::int64_t begin = 0; begin < adjusted; begin += most) {
    const std::int64_t end = std::min(begin + most, adjusted);
    const std::int64_t first = plain_ + begin, last = plain_ + end;
    const Tensor out = adjusted_.tensor().slice(0, 0, end - begin);
    AdjustLogitsArgs args{.logits = logits, .rows = rows.slice(0, first, last), .out = out};
    if (entries > 0) {
      args.bias_begin = bias_begin.slice(0, begin, end + 1);
      args.bias_ids = block_.tensor(at_.bias_ids, DType::i32, {entries});
      args.bias = block_.tensor(at_.bias, DType::f32, {entries});
    }
    if (with_penalties) {
      args.penalties = penalties.slice(0, begin, end);
      args.slots = slots.slice(0, first, last);
      args.counts = slots_.counts();
    }
    adjust_logits(ctx_, args);
    const Tensor ids = results(0, DType::i32, {count}).slice(0, first, last);
    sample_rows(ctx_, {.logits = out,
                       .rows = block_.tensor(at_.numbers, DType::i32, {end - begin}),
                       .options = options.slice(0, first, last),
                       .ids = ids});
    if (!with_penalties) continue;
    count_tokens(ctx_,
                 {.counts = slots_.counts(), .ids = ids, .slots = slots.slice(0, first, last)});
  }
}

void DeviceDraws::report(const Tensor& logits, std::int64_t top) {
  const std::int64_t count = std::ssize(items_);
  const Tensor rows = block_.tensor(at_.rows, DType::i32, {count});
  const Tensor ids = results(0, DType::i32, {count});
  for (std::int64_t begin = 0; begin < reported_; begin += max_rows_) {
    const std::int64_t end = std::min(begin + max_rows_, reported_);
    const std::int64_t first = first_reported_ + begin, last = first_reported_ + end;
    LogprobsArgs args{.logits = logits,
                      .rows = rows.slice(0, first, last),
                      .ids = ids.slice(0, first, last),
                      .logprobs = results(count, DType::f32, {reported_}).slice(0, begin, end)};
    if (top > 0) {
      const std::int64_t place = count + reported_;
      args.top_ids = results(place, DType::i32, {reported_, top}).slice(0, begin, end);
      args.top_logprobs =
          results(place + reported_ * top, DType::f32, {reported_, top}).slice(0, begin, end);
    }
    logprobs(ctx_, args);
  }
}

// ---- after a round ------------------------------------------------------------------------------

// Hands each draw its tokens, as long as drafts are right.
void DeviceDraws::take(std::span<Draw> draws) {
  going_on_.clear();
  for (std::size_t d = 0; d < draws.size(); ++d) {
    Draw& draw = draws[d];
    const auto [first, count] = places_[d];
    bool goes_on = count > 0;
    for (std::size_t i = first; goes_on && i < first + count; ++i) goes_on = take_item(draw, i);
    if (goes_on) going_on_.push_back(d);
  }
}

// Returns whether the next row is to be drawn from as well.
bool DeviceDraws::take_item(Draw& draw, std::size_t item) {
  const std::int32_t id = host_results_[item];
  if (id < 0) return false;
  if (items_[item].slot >= 0) slots_.counted(items_[item].slot);
  draw.sampler->accept(id);
  Sampled& sampled = draw.drawn->emplace_back();
  sampled.token.id = id;
  if (draw.top_logprobs >= 0) {
    const std::size_t count = items_.size(), reported = static_cast<std::size_t>(reported_);
    const std::size_t top = static_cast<std::size_t>(top_);
    const std::size_t at = item - static_cast<std::size_t>(first_reported_);
    const auto logprob = [&](std::size_t i) { return std::bit_cast<float>(host_results_[i]); };
    sampled.token.logprob = logprob(count + at);
    const std::size_t top_ids = count + reported + at * top;
    for (std::size_t j = 0; j < static_cast<std::size_t>(draw.top_logprobs); ++j) {
      sampled.top.push_back({host_results_[top_ids + j], logprob(top_ids + reported * top + j)});
    }
  }
  const std::size_t drawn = draw.drawn->size();
  return drawn <= draw.drafts.size() && draw.drafts[drawn - 1] == id;
}

}  // namespace tessera
