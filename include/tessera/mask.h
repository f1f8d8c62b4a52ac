// Which keys a query may see, as a value. Every attention kernel asks a Mask one question per tile
// (skip, full or partial) and, only in partial tiles, one question per element.
//
// Keys are at positions 0 .. n_k - 1. Queries are at the last of these: query i of n_q is at
// position p = i + (n_k - n_q), so that the last query is level with the last key, as decoding with
// a cache needs.
//
// Threads: a Mask never changes. Any number may use it, and copies share its lists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tessera {

// A sparse pattern of square blocks of queries x keys, as compressed rows: query block r sees the
// key blocks indices[offsets[r]] .. indices[offsets[r + 1] - 1], in rising order. Copies share the
// lists.
class BlockMask {
 public:
  // Checks that the lists describe a [q_blocks, k_blocks] pattern; throws if they do not.
  static BlockMask from_csr(std::int64_t block, std::int64_t q_blocks, std::int64_t k_blocks,
                            std::span<const std::int64_t> offsets,
                            std::span<const std::int32_t> indices);
  // In the builders below, key block r is query block r's own block, if there is one.
  //
  // Key blocks within `radius` of the query block's own.
  static BlockMask local(std::int64_t block, std::int64_t q_blocks, std::int64_t k_blocks,
                         std::int64_t radius);
  // `per_row` key blocks: the own one, and others drawn without repetition. The same seed gives the
  // same pattern.
  static BlockMask random(std::int64_t block, std::int64_t q_blocks, std::int64_t k_blocks,
                          std::int64_t per_row, std::uint64_t seed);
  // Key blocks within `radius`, and every `stride`-th from block 0 on: near keys in full, far keys
  // in samples.
  static BlockMask strided(std::int64_t block, std::int64_t q_blocks, std::int64_t k_blocks,
                           std::int64_t radius, std::int64_t stride);

  BlockMask() = default;
  // False for a pattern that no builder made; it has no lists.
  bool defined() const { return lists_ != nullptr; }
  std::int64_t block() const { return lists_->block; }
  std::int64_t q_blocks() const { return lists_->q_blocks; }
  std::int64_t k_blocks() const { return lists_->k_blocks; }
  std::span<const std::int64_t> offsets() const;
  std::span<const std::int32_t> indices() const;
  std::span<const std::int32_t> row(std::int64_t q_block) const;
  // The query blocks in the order in which workers should take them: those that see the most key
  // blocks come first, and among equals the later ones.
  std::span<const std::int32_t> longest_first() const;
  // The bytes of offsets(), indices() and longest_first(), one after the other, for one copy to a
  // GPU.
  std::span<const std::byte> bytes() const { return lists_->bytes; }
  bool contains(std::int64_t q_block, std::int64_t k_block) const;
  std::int64_t visited() const { return offsets().back(); }

 private:
  struct Lists {
    std::int64_t block, q_blocks, k_blocks;
    std::vector<std::byte> bytes;
  };
  BlockMask(std::int64_t block, std::int64_t k_blocks, std::span<const std::int64_t> offsets,
            std::span<const std::int32_t> indices);

  std::shared_ptr<const Lists> lists_;
  friend class Mask;
};

enum class TileState : std::uint8_t { skip, full, partial };

class Mask {
 public:
  enum class Kind : std::uint8_t { full, causal, window, sinks, blocks };

  Mask() = default;  // full
  static Mask full() { return {}; }
  // Keys up to the query's own position.
  static Mask causal();
  // Keys in [p - left, p + right]; -1 on a side leaves that side open.
  static Mask window(std::int64_t left, std::int64_t right);
  // The first n_sink keys and the last `window` ones up to the query's own: causal.
  static Mask sinks(std::int64_t n_sink, std::int64_t window);
  // The blocks of a pattern, counted from query 0 and key 0; with `causal`, only keys up to p.
  static Mask blocks(BlockMask pattern, bool causal = false);

  Kind kind() const { return kind_; }
  std::int64_t left() const { return left_; }      // window, and sinks (window - 1); -1: open
  std::int64_t right() const { return right_; }    // causal and sinks: 0; -1: open
  std::int64_t n_sink() const { return n_sink_; }  // sinks
  const BlockMask& pattern() const { return pattern_; }

  // May the query at row i, position p = i + (n_k - n_q), see key j?
  bool allows(std::int64_t i, std::int64_t p, std::int64_t j) const;
  // The tile of query rows [q0, q1) and keys [k0, k1), neither empty, where shift = n_k - n_q.
  // A tile with a hidden element is never full, and one with a visible element is never skipped.
  // Exact, except that with causal block patterns a tile without visible elements may be partial.
  TileState classify(std::int64_t q0, std::int64_t q1, std::int64_t k0, std::int64_t k1,
                     std::int64_t shift) const;
  // Where a loop over key tiles continues: the first key from k on that some row of [q0, q1) may
  // see; kNoKey if there is none. As exact as classify(): with causal block patterns it may be too
  // early.
  std::int64_t next_visible(std::int64_t q0, std::int64_t q1, std::int64_t k,
                            std::int64_t shift) const;
  static constexpr std::int64_t kNoKey = INT64_MAX;
  // "causal", "window(128, 0)", ...
  std::string to_string() const;

 private:
  Kind kind_ = Kind::full;
  std::int64_t left_ = -1, right_ = -1, n_sink_ = 0;
  BlockMask pattern_;
};

}  // namespace tessera
