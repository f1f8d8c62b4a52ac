// A Mask as plain numbers and pointers, for kernels on the host and on a GPU. Mask itself answers
// its questions through this; tessera/mask.h says what they mean.
//
// All masks but blocks are a band, -left <= j - p <= right; sinks add the first keys to it.
// Over the tile [p0, p1] x [k0, k1) the difference j - p takes every value from k0 - p1 to
// k1 - 1 - p0.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/host_device.h"
#include "tessera/mask.h"

namespace tessera {

struct MaskView {
  Mask::Kind kind = Mask::Kind::full;
  std::int64_t left = -1, right = -1, n_sink = 0;
  // Of a block pattern. The lists are in the memory of the device that uses the view.
  std::int64_t block = 1, q_blocks = 0, k_blocks = 0;
  const std::int64_t* offsets = nullptr;        // [q_blocks + 1]
  const std::int32_t* indices = nullptr;        // [offsets[q_blocks]]
  const std::int32_t* longest_first = nullptr;  // [q_blocks]: those of most blocks first

  // The lists are the Mask's own ones, in host memory.
  static MaskView of(const Mask& mask) {
    MaskView view{
        .kind = mask.kind(), .left = mask.left(), .right = mask.right(), .n_sink = mask.n_sink()};
    if (mask.kind() == Mask::Kind::blocks) {
      const BlockMask& pattern = mask.pattern();
      view.block = pattern.block();
      view.q_blocks = pattern.q_blocks();
      view.k_blocks = pattern.k_blocks();
      view.offsets = pattern.offsets().data();
      view.indices = pattern.indices().data();
      view.longest_first = pattern.longest_first().data();
    }
    return view;
  }

  TESSERA_HOST_DEVICE bool allows(std::int64_t i, std::int64_t p, std::int64_t j) const {
    if (kind == Mask::Kind::blocks) return in_band(j - p) && sees_block(i / block, j / block);
    return in_band(j - p) || (j < n_sink && j <= p);
  }

  TESSERA_HOST_DEVICE TileState classify(std::int64_t q0, std::int64_t q1, std::int64_t k0,
                                         std::int64_t k1, std::int64_t shift) const {
    const std::int64_t p0 = q0 + shift, p1 = q1 - 1 + shift;  // both ends belong to the tile
    const std::int64_t lowest = k0 - p1, highest = k1 - 1 - p0;
    const bool band_met = (left < 0 || highest >= -left) && (right < 0 || lowest <= right);
    const bool all_in_band = in_band(lowest) && in_band(highest);
    switch (kind) {
      case Mask::Kind::full:
        return TileState::full;
      case Mask::Kind::causal:
      case Mask::Kind::window:
        return !band_met ? TileState::skip : all_in_band ? TileState::full : TileState::partial;
      case Mask::Kind::sinks: {
        const bool sinks_met = k0 < n_sink && k0 <= p1;
        if (!band_met && !sinks_met) return TileState::skip;
        // Keys after the sinks must be in the window of the last query.
        const std::int64_t behind = std::max(k0, n_sink);
        const bool all = highest <= 0 && (behind >= k1 || p1 - behind <= left);
        return all ? TileState::full : TileState::partial;
      }
      case Mask::Kind::blocks: {
        if (!band_met) return TileState::skip;
        const TileState state = pattern_state(q0, q1, k0, k1);
        return state == TileState::full && !all_in_band ? TileState::partial : state;
      }
    }
    return TileState::partial;
  }

  TESSERA_HOST_DEVICE std::int64_t next_visible(std::int64_t q0, std::int64_t q1, std::int64_t k,
                                                std::int64_t shift) const {
    const std::int64_t p0 = q0 + shift, p1 = q1 - 1 + shift;
    k = std::max<std::int64_t>(k, 0);
    if (kind == Mask::Kind::sinks && k < n_sink && k <= p1) return k;
    if (left >= 0 && p0 - k > left) k = p0 - left;
    if (kind == Mask::Kind::blocks) {
      std::int64_t next = k_blocks;
      for (std::int64_t r = q0 / block; r <= (q1 - 1) / block; ++r) {
        const BlockRow row = row_of(r);
        const std::int32_t* found = first_from(row, k / block);
        if (found != row.end) next = std::min<std::int64_t>(next, *found);
      }
      if (next == k_blocks) return Mask::kNoKey;
      k = std::max(k, next * block);
    }
    return right >= 0 && k - p1 > right ? Mask::kNoKey : k;
  }

  // Of a block pattern: does it hold this block?
  TESSERA_HOST_DEVICE bool sees_block(std::int64_t q_block, std::int64_t k_block) const {
    const BlockRow row = row_of(q_block);
    const std::int32_t* found = first_from(row, k_block);
    return found != row.end && *found == k_block;
  }

 private:
  struct BlockRow {
    const std::int32_t *begin, *end;
  };

  TESSERA_HOST_DEVICE bool in_band(std::int64_t difference) const {
    return (left < 0 || difference >= -left) && (right < 0 || difference <= right);
  }

  // The key blocks of a query block. One outside the pattern sees nothing: on a GPU, the call could
  // not be checked for that.
  TESSERA_HOST_DEVICE BlockRow row_of(std::int64_t q_block) const {
    if (q_block >= q_blocks) return {indices, indices};
    return {indices + offsets[q_block], indices + offsets[q_block + 1]};
  }

  // The first block of the row that is not before k_block.
  TESSERA_HOST_DEVICE static const std::int32_t* first_from(BlockRow row, std::int64_t k_block) {
    while (row.begin != row.end) {
      const std::int32_t* middle = row.begin + (row.end - row.begin) / 2;
      if (*middle < k_block) {
        row.begin = middle + 1;
      } else {
        row.end = middle;
      }
    }
    return row.begin;
  }

  // Whether none, all or some of a tile's blocks are in the pattern.
  TESSERA_HOST_DEVICE TileState pattern_state(std::int64_t q0, std::int64_t q1, std::int64_t k0,
                                              std::int64_t k1) const {
    const std::int64_t first = k0 / block, last = (k1 - 1) / block;
    bool none = true, all = true;
    for (std::int64_t r = q0 / block; r <= (q1 - 1) / block; ++r) {
      const BlockRow row = row_of(r);
      const std::int64_t count = first_from(row, last + 1) - first_from(row, first);
      none = none && count == 0;
      all = all && count == last - first + 1;
      if (!none && !all) return TileState::partial;
    }
    return none ? TileState::skip : TileState::full;
  }
};

}  // namespace tessera
