#include "tessera/mask.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/checked.h"
#include "core/mask_view.h"
#include "core/philox.h"

namespace tessera {
namespace {

// Key blocks are stored in 32 bits, and positions in 64.
void check_grid(const char* builder, std::int64_t block, std::int64_t q_blocks,
                std::int64_t k_blocks) {
  if (block < 1) {
    fail(ErrorCode::invalid_argument, "BlockMask::{}: block is {}; it must be at least 1", builder,
         block);
  }
  for (const auto& [name, count] : {std::pair{"q_blocks", q_blocks}, {"k_blocks", k_blocks}}) {
    if (count < 0 || count > INT32_MAX) {
      fail(ErrorCode::invalid_argument, "BlockMask::{}: {} is {}; it must be in 0..{}", builder,
           name, count, INT32_MAX);
    }
    checked_mul(block, count);
  }
}

void check_at_least(const char* builder, const char* name, std::int64_t value, std::int64_t least) {
  if (value < least) {
    fail(ErrorCode::invalid_argument, "BlockMask::{}: {} is {}; it must be at least {}", builder,
         name, value, least);
  }
}

// Adds [begin, end) of a row's key blocks.
void append_range(std::vector<std::int32_t>& indices, std::int64_t begin, std::int64_t end) {
  for (std::int64_t c = begin; c < end; ++c) indices.push_back(static_cast<std::int32_t>(c));
}

// The key blocks within `radius` of r, cut to [0, k_blocks).
std::pair<std::int64_t, std::int64_t> near_blocks(std::int64_t r, std::int64_t radius,
                                                  std::int64_t k_blocks) {
  const std::int64_t begin = std::min(k_blocks, r - std::min(r, radius));
  return {begin, radius >= k_blocks - r ? k_blocks : r + radius + 1};
}

// `count` different numbers of [0, n), rising: Floyd's sampling, which draws each exactly once.
std::vector<std::int64_t> draw(std::int64_t count, std::int64_t n, std::uint64_t seed,
                               std::uint32_t row) {
  std::vector<std::int64_t> drawn;
  for (std::int64_t last = n - count; last < n; ++last) {
    const PhiloxWords words = philox(seed, {static_cast<std::uint32_t>(last), row, 0, 0});
    const std::uint64_t random = (std::uint64_t{words[0]} << 32) | words[1];
    std::int64_t pick = static_cast<std::int64_t>(random % static_cast<std::uint64_t>(last + 1));
    if (std::binary_search(drawn.begin(), drawn.end(), pick)) pick = last;
    drawn.insert(std::upper_bound(drawn.begin(), drawn.end(), pick), pick);
  }
  return drawn;
}

}  // namespace

// ---- BlockMask ---------------------------------------------------------------------------------

BlockMask::BlockMask(std::int64_t block, std::int64_t k_blocks,
                     std::span<const std::int64_t> offsets, std::span<const std::int32_t> indices) {
  const std::int64_t q_blocks = std::ssize(offsets) - 1;
  std::vector<std::int32_t> order(static_cast<std::size_t>(q_blocks));
  std::iota(order.rbegin(), order.rend(), 0);
  const auto length = [&](std::int32_t r) { return offsets[r + 1] - offsets[r]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return length(a) > length(b); });
  Lists lists{block, q_blocks, k_blocks, {}};
  for (const auto part : {std::as_bytes(offsets), std::as_bytes(indices),
                          std::as_bytes(std::span<const std::int32_t>(order))}) {
    lists.bytes.insert(lists.bytes.end(), part.begin(), part.end());
  }
  lists_ = std::make_shared<const Lists>(std::move(lists));
}

std::span<const std::int64_t> BlockMask::offsets() const {
  return {reinterpret_cast<const std::int64_t*>(bytes().data()),
          static_cast<std::size_t>(q_blocks() + 1)};
}

std::span<const std::int32_t> BlockMask::indices() const {
  return {reinterpret_cast<const std::int32_t*>(bytes().data() + offsets().size_bytes()),
          static_cast<std::size_t>(visited())};
}

std::span<const std::int32_t> BlockMask::longest_first() const {
  return {indices().data() + visited(), static_cast<std::size_t>(q_blocks())};
}

BlockMask BlockMask::from_csr(std::int64_t block, std::int64_t q_blocks, std::int64_t k_blocks,
                              std::span<const std::int64_t> offsets,
                              std::span<const std::int32_t> indices) {
  check_grid("from_csr", block, q_blocks, k_blocks);
  const auto refuse = [](const std::string& what) {
    fail(ErrorCode::invalid_argument, "BlockMask::from_csr: {}", what);
  };
  const std::int64_t n_offsets = std::ssize(offsets), n_indices = std::ssize(indices);
  if (n_offsets != q_blocks + 1) {
    refuse(fmt::format("{} offsets were given; {} query blocks need {}", n_offsets, q_blocks,
                       q_blocks + 1));
  }
  if (offsets.front() != 0 || offsets.back() != n_indices) {
    refuse(
        fmt::format("offsets run from {} to {}; they must run from 0 to the number of indices, {}",
                    offsets.front(), offsets.back(), n_indices));
  }
  for (std::int64_t r = 0; r < q_blocks; ++r) {
    if (offsets[r] > offsets[r + 1]) {
      refuse(fmt::format("offsets fall from {} to {} at query block {}; they must not fall",
                         offsets[r], offsets[r + 1], r));
    }
  }
  for (std::int64_t r = 0; r < q_blocks; ++r) {
    for (std::int64_t at = offsets[r]; at < offsets[r + 1]; ++at) {
      if (indices[at] < 0 || indices[at] >= k_blocks) {
        refuse(fmt::format("key block {} of query block {} is not in 0..{}", indices[at], r,
                           k_blocks - 1));
      }
      if (at > offsets[r] && indices[at - 1] >= indices[at]) {
        refuse(
            fmt::format("key block {} follows {} in query block {}; the key blocks of a row must "
                        "rise, each given once",
                        indices[at], indices[at - 1], r));
      }
    }
  }
  return {block, k_blocks, offsets, indices};
}

BlockMask BlockMask::local(std::int64_t block, std::int64_t q_blocks, std::int64_t k_blocks,
                           std::int64_t radius) {
  check_grid("local", block, q_blocks, k_blocks);
  check_at_least("local", "radius", radius, 0);
  std::vector<std::int64_t> offsets{0};
  std::vector<std::int32_t> indices;
  for (std::int64_t r = 0; r < q_blocks; ++r) {
    const auto [begin, end] = near_blocks(r, radius, k_blocks);
    append_range(indices, begin, end);
    offsets.push_back(std::ssize(indices));
  }
  return {block, k_blocks, offsets, indices};
}

BlockMask BlockMask::random(std::int64_t block, std::int64_t q_blocks, std::int64_t k_blocks,
                            std::int64_t per_row, std::uint64_t seed) {
  check_grid("random", block, q_blocks, k_blocks);
  if (per_row < 1 || per_row > k_blocks) {
    fail(ErrorCode::invalid_argument,
         "BlockMask::random: per_row is {}; it must be in 1..{}, the number of key blocks", per_row,
         k_blocks);
  }
  std::vector<std::int64_t> offsets{0};
  std::vector<std::int32_t> indices;
  for (std::int64_t r = 0; r < q_blocks; ++r) {
    const bool has_own = r < k_blocks;
    // Draws from the other blocks: a number from the own block on stands for the block after it.
    std::vector<std::int64_t> blocks =
        draw(per_row - has_own, k_blocks - has_own, seed, static_cast<std::uint32_t>(r));
    for (std::int64_t& c : blocks) c += has_own && c >= r;
    if (has_own) blocks.insert(std::upper_bound(blocks.begin(), blocks.end(), r), r);
    for (std::int64_t c : blocks) append_range(indices, c, c + 1);
    offsets.push_back(std::ssize(indices));
  }
  return {block, k_blocks, offsets, indices};
}

BlockMask BlockMask::strided(std::int64_t block, std::int64_t q_blocks, std::int64_t k_blocks,
                             std::int64_t radius, std::int64_t stride) {
  check_grid("strided", block, q_blocks, k_blocks);
  check_at_least("strided", "radius", radius, 0);
  check_at_least("strided", "stride", stride, 1);
  std::vector<std::int64_t> offsets{0};
  std::vector<std::int32_t> indices;
  for (std::int64_t r = 0; r < q_blocks; ++r) {
    const auto [begin, end] = near_blocks(r, radius, k_blocks);
    for (std::int64_t c = 0; c < k_blocks; ++c) {
      if (c % stride == 0 || (c >= begin && c < end)) append_range(indices, c, c + 1);
    }
    offsets.push_back(std::ssize(indices));
  }
  return {block, k_blocks, offsets, indices};
}

std::span<const std::int32_t> BlockMask::row(std::int64_t q_block) const {
  const std::int64_t begin = offsets()[q_block], end = offsets()[q_block + 1];
  return indices().subspan(begin, end - begin);
}

bool BlockMask::contains(std::int64_t q_block, std::int64_t k_block) const {
  const std::span<const std::int32_t> blocks = row(q_block);
  return std::binary_search(blocks.begin(), blocks.end(), k_block);
}

// ---- Mask --------------------------------------------------------------------------------------

Mask Mask::causal() {
  Mask mask;
  mask.kind_ = Kind::causal;
  mask.right_ = 0;
  return mask;
}

Mask Mask::window(std::int64_t left, std::int64_t right) {
  if (left < -1 || right < -1) {
    fail(ErrorCode::invalid_argument,
         "Mask::window: left is {} and right is {}; each must be at least 0, or -1 for open", left,
         right);
  }
  Mask mask;
  mask.kind_ = Kind::window;
  mask.left_ = left;
  mask.right_ = right;
  return mask;
}

Mask Mask::sinks(std::int64_t n_sink, std::int64_t window) {
  if (n_sink < 0 || window < 1) {
    fail(ErrorCode::invalid_argument,
         "Mask::sinks: n_sink is {} and window is {}; they must be at least 0 and 1", n_sink,
         window);
  }
  Mask mask;
  mask.kind_ = Kind::sinks;
  mask.n_sink_ = n_sink;
  mask.left_ = window - 1;
  mask.right_ = 0;
  return mask;
}

Mask Mask::blocks(BlockMask pattern, bool causal) {
  if (!pattern.defined()) {
    fail(ErrorCode::invalid_argument,
         "Mask::blocks: the pattern is empty; make one with BlockMask::local, random, strided or "
         "from_csr");
  }
  Mask mask;
  mask.kind_ = Kind::blocks;
  mask.right_ = causal ? 0 : -1;
  mask.pattern_ = std::move(pattern);
  return mask;
}

bool Mask::allows(std::int64_t i, std::int64_t p, std::int64_t j) const {
  return MaskView::of(*this).allows(i, p, j);
}

TileState Mask::classify(std::int64_t q0, std::int64_t q1, std::int64_t k0, std::int64_t k1,
                         std::int64_t shift) const {
  return MaskView::of(*this).classify(q0, q1, k0, k1, shift);
}

std::int64_t Mask::next_visible(std::int64_t q0, std::int64_t q1, std::int64_t k,
                                std::int64_t shift) const {
  return MaskView::of(*this).next_visible(q0, q1, k, shift);
}

std::string Mask::to_string() const {
  switch (kind_) {
    case Kind::full:
      return "full";
    case Kind::causal:
      return "causal";
    case Kind::window:
      return fmt::format("window({}, {})", left_, right_);
    case Kind::sinks:
      return fmt::format("sinks({}, {})", n_sink_, left_ + 1);
    case Kind::blocks:
      return fmt::format("blocks({}x{} of {}, {} visited{})", pattern_.q_blocks(),
                         pattern_.k_blocks(), pattern_.block(), pattern_.visited(),
                         right_ == 0 ? ", causal" : "");
  }
  return "";
}

}  // namespace tessera
