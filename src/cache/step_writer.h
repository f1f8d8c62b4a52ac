// Writes the small tensors of a step: for every row its id, position and slot, and for every group
// of rows that one attention() call serves its page tables, lengths and holes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/stream_layout.h"
#include "core/step_row.h"
#include "tessera/cache_batch.h"

namespace tessera {

// A part of a step, as the writer sees it. The sequence has its pages already. A part without a
// layout is a row for nobody (CacheBatchLimits::pads): one token, no keys.
struct StepPart {
  const StreamLayout* layout = nullptr;
  CachePolicy policy{};
  std::int64_t begin = 0;  // the first of its tokens in its stream
  std::span<const std::int32_t> ids{};
  std::int64_t logit_rows = 0;
  std::span<const std::int32_t> sinks{}, line{};  // its pages
  std::int64_t line_begin = 0;                    // the first page of the line
  bool is_prompt = false;                         // counts as many tokens

  bool is_padding() const { return layout == nullptr; }
  std::int64_t tokens() const { return std::ssize(ids); }
  bool rope_on_read() const { return policy.kind == CachePolicy::Kind::sinks; }
  bool rolls() const { return rope_on_read() && !layout->fits(begin); }
  // The one next token of its stream, which the device draws; or nobody's.
  bool is_drawn() const { return tokens() == 1 && logit_rows == 1 && (is_padding() || ids[0] < 0); }
  StreamRules rules() const {
    if (is_padding()) return {};
    return *layout;
  }
  std::int64_t pages() const { return std::ssize(sinks) + std::ssize(line); }
  std::int32_t page(std::int64_t place) const {
    const std::int64_t in_line = place - std::ssize(sinks);
    return in_line < 0 ? sinks[static_cast<std::size_t>(place)]
                       : line[static_cast<std::size_t>(in_line)];
  }
};

// Bytes of the small tensors of any step within the limits.
std::int64_t step_block_bytes(const CacheBatchLimits& limits);

class StepWriter {
 public:
  explicit StepWriter(const CacheBatchLimits& limits);

  // Writes to `host`. The step's tensors are at `data`, where the same bytes are on the device.
  // Returns how many bytes there are.
  std::int64_t write(std::span<const StepPart> parts, char* host, char* data, Device device,
                     CacheStep& step);

 private:
  class Packer;
  // A part's queries in a group: all of its tokens, or those whose logits are wanted.
  struct Run {
    std::size_t part = 0;
    std::int64_t queries = 0;
    bool is_long = false;  // more queries than a few, or of a prompt
    bool rope = false;
    bool single = false;      // one query
    bool many = false;        // AttentionArgs::many_queries
    std::int64_t window = 0;  // of the mask; 0: causal
    std::int64_t own = 0;     // a run that shares no call has a number of its own

    bool operator<(const Run& other) const;
    bool shares_call(const Run& other) const;
  };

  void sort_runs(std::span<const StepPart> parts, bool for_logits);
  void write_rows(std::span<const StepPart> parts, Packer& packer, CacheStep& step);
  void write_logit_rows(std::span<const StepPart> parts, Packer& packer, CacheStep& step);
  void write_groups(std::span<const StepPart> parts, Packer& packer,
                    std::vector<AttentionGroup>& groups);
  void write_group(std::span<const StepPart> parts, std::span<const Run> runs, Packer& packer,
                   AttentionGroup& group);
  void write_table(std::span<const StepPart> parts, std::span<const Run> runs, Packer& packer,
                   AttentionGroup& group);
  std::int64_t table_width(std::int64_t pages) const;

  CacheBatchLimits limits_;
  std::vector<Run> runs_;
  StepRow* step_rows_ = nullptr;  // CacheStep::rows, if the step has them
};

}  // namespace tessera
