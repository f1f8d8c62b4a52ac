#include "modules/ring_mask.h"

#include <algorithm>

namespace tessera {
namespace {

using Chunk = RingLayout::Chunk;

// A band, -left <= key - row <= right in the sequence; -1: open. attention() assumes that the last
// row of a call is level with its last key. Here they are k.end - q.end apart, so the band moves by
// that distance. Keys that no row sees and rows that see no key are cut off at the ends, until
// neither side of the moved band is negative.
void add_band(Chunk q, Chunk k, std::int64_t left, std::int64_t right,
              std::vector<RingCall>& calls) {
  if (right >= 0) k.end = std::min(k.end, q.end + right);
  if (left >= 0) q.end = std::min(q.end, k.end + left);
  if (right >= 0) k.end = std::min(k.end, q.end + right);
  if (q.size() <= 0 || k.size() <= 0) return;
  const std::int64_t ahead = k.end - q.end;
  const std::int64_t moved_left = left < 0 ? -1 : left + ahead;
  const std::int64_t moved_right = right < 0 ? -1 : right - ahead;
  const Mask mask = Mask::window(moved_left, moved_right);
  // The op asks the mask for each tile; a call in which nothing is visible would only cost time.
  if (mask.next_visible(0, q.size(), 0, k.size() - q.size()) >= k.size()) return;
  const bool all = mask.classify(0, q.size(), 0, k.size(), k.size() - q.size()) == TileState::full;
  calls.push_back({q, k, all ? Mask::full() : mask});
}

// The rows and columns of the pattern that two chunks cover; both begin at whole blocks.
void add_blocks(const Mask& mask, const Chunk& q, const Chunk& k, std::vector<RingCall>& calls) {
  const bool causal = mask.right() == 0;
  if (causal && k.begin > q.begin) return;  // chunks are the same or do not overlap
  const BlockMask& pattern = mask.pattern();
  const std::int64_t block = pattern.block();
  const auto blocks = [&](const Chunk& chunk) { return (chunk.size() + block - 1) / block; };
  const std::int64_t q0 = q.begin / block, k0 = k.begin / block, k_blocks = blocks(k);
  std::vector<std::int64_t> offsets{0};
  std::vector<std::int32_t> indices;
  for (std::int64_t r = 0; r < blocks(q); ++r) {
    for (const std::int32_t c : pattern.row(q0 + r)) {
      if (c >= k0 && c < k0 + k_blocks) indices.push_back(static_cast<std::int32_t>(c - k0));
    }
    offsets.push_back(std::ssize(indices));
  }
  if (indices.empty()) return;
  calls.push_back({q, k,
                   Mask::blocks(BlockMask::from_csr(block, blocks(q), k_blocks, offsets, indices),
                                causal && k.begin == q.begin)});
}

}  // namespace

std::vector<RingCall> ring_calls(const Mask& mask, const Chunk& q, const Chunk& k) {
  std::vector<RingCall> calls;
  if (q.size() <= 0 || k.size() <= 0) return calls;
  switch (mask.kind()) {
    case Mask::Kind::full:
    case Mask::Kind::causal:
    case Mask::Kind::window:
      add_band(q, k, mask.left(), mask.right(), calls);
      break;
    case Mask::Kind::sinks: {
      // A row sees all sinks up to itself, and those of the other keys that are in its window.
      const std::int64_t cut = std::clamp(mask.n_sink(), k.begin, k.end);
      add_band(q, {k.begin, cut}, -1, 0, calls);
      add_band(q, {cut, k.end}, mask.left(), 0, calls);
      break;
    }
    case Mask::Kind::blocks:
      add_blocks(mask, q, k, calls);
      break;
  }
  return calls;
}

}  // namespace tessera
