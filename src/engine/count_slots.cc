#include "engine/count_slots.h"

#include <algorithm>

#include "tessera/token_counts.h"

namespace tessera {

void CountSlots::begin(std::int64_t streams) {
  ++step_;
  if (std::ssize(slots_) >= streams) return;
  const std::int64_t size = std::max<std::int64_t>(2 * std::ssize(slots_), streams);
  ctx_.synchronize();
  counts_ = Buffer();
  slots_.clear();  // they are filled again when they are needed
  counts_ = Buffer(DType::i32, {size, vocab_}, ctx_.device());
  slots_.resize(static_cast<std::size_t>(size));
}

// The stream's own slot, or else the one that has been idle for longest.
std::size_t CountSlots::find(std::uint64_t stream) const {
  const auto own = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    return slot.is_filled && slot.stream == stream;
  });
  if (own != slots_.end()) return static_cast<std::size_t>(own - slots_.begin());
  const auto idle = std::min_element(slots_.begin(), slots_.end(),
                                     [](const Slot& a, const Slot& b) { return a.step < b.step; });
  return static_cast<std::size_t>(idle - slots_.begin());
}

std::int32_t CountSlots::slot_of(const Draw& draw) {
  const std::size_t at = find(draw.stream);
  Slot& slot = slots_[at];
  const bool is_current =
      slot.is_filled && slot.stream == draw.stream && slot.draws == draw.sampler->draws();
  if (!is_current) {
    draw.sampler->reserve(vocab_);
    fill(static_cast<std::int32_t>(at), *draw.sampler);
  }
  slot = {.is_filled = true, .stream = draw.stream, .draws = draw.sampler->draws(), .step = step_};
  return static_cast<std::int32_t>(at);
}

void CountSlots::fill(std::int32_t slot, const Sampler& sampler) {
  const std::span<const std::int32_t> ids = sampler.seen();
  const std::int64_t size = std::ssize(ids);
  if (size == 0) return fill_counts(ctx_, {.counts = counts(), .slot = slot});
  values_.clear();
  for (const std::int32_t id : ids) {
    const std::int32_t generated = sampler.generated(id);
    values_.push_back(generated > 0 ? generated : kInPrompt);
  }
  upload_.clear();
  const std::int64_t id_place = upload_.add(ids);
  const std::int64_t value_place = upload_.add(std::span<const std::int32_t>(values_));
  upload_.send();
  fill_counts(ctx_, {.counts = counts(),
                     .slot = slot,
                     .ids = upload_.tensor(id_place, DType::i32, {size}),
                     .values = upload_.tensor(value_place, DType::i32, {size})});
}

}  // namespace tessera
