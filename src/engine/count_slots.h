// Where the counts of streams with penalties lie on the device (tessera/token_counts.h). The
// Sampler has the same counts on the host: a slot is a copy that is made when it is missing, and
// then kept up to date by count_tokens().
#pragma once

#include <cstdint>
#include <vector>

#include "engine/draw.h"
#include "engine/upload_block.h"
#include "tessera/buffer.h"

namespace tessera {

class CountSlots {
 public:
  CountSlots(Context& ctx, std::int64_t vocab) : ctx_(ctx), vocab_(vocab), upload_(ctx) {}

  // Begins a step in which this many streams have penalties.
  void begin(std::int64_t streams);
  // The slot of the draw's stream, with what its Sampler has seen.
  std::int32_t slot_of(const Draw& draw);
  // The stream's Sampler has accepted a token, and count_tokens() has counted it.
  void counted(std::int32_t slot) { ++slots_[static_cast<std::size_t>(slot)].draws; }

  // i32 [slots, vocab]
  Tensor counts() const { return counts_.tensor(); }

 private:
  struct Slot {
    bool is_filled = false;
    std::uint64_t stream = 0;
    std::uint64_t draws = 0;  // of the Sampler, when the slot was the same
    std::int64_t step = 0;    // that used it last
  };
  std::size_t find(std::uint64_t stream) const;
  void fill(std::int32_t slot, const Sampler& sampler);

  Context& ctx_;
  std::int64_t vocab_;
  Buffer counts_;
  UploadBlock upload_;
  std::vector<Slot> slots_;
  std::int64_t step_ = 0;
  std::vector<std::int32_t> values_;  // scratch
};

}  // namespace tessera
