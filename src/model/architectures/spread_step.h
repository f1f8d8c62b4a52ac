// What a step over a spread cache (context_pass.h) means for one process: which rows it runs, where
// their keys go, and what each call of attention() sees. It is computed once, on the host, and goes
// to the device in one copy: layers differ only in their windows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/workspace.h"
#include "model/architectures/forward.h"
#include "model/architectures/spread_sequence.h"
#include "tessera/attention.h"
#include "tessera/model.h"

namespace tessera {

class SpreadStep {
 public:
  // `args`: of all ranks, with the step of rank 0, whose pages have numbers of the whole pool.
  // `ranks`: how many. `windows`: of the layers.
  SpreadStep(Context& ctx, int ranks, const ForwardArgs& args,
             std::span<const std::int64_t> windows);

  // This rank's rows, with its own slots. Page tables are still those of the whole pool.
  const CacheStep& local() const { return local_; }
  const CacheStep& whole() const { return whole_; }
  // Many tokens of one sequence: the rows are spread over the ranks.
  bool splits_rows() const { return splits_; }
  // With splits_rows(): rows of the whole step.
  const std::vector<std::int64_t>& own_rows() const { return own_rows_; }
  Device device() const { return device_; }

  // Small tensors of one call of attention(): where each begins, in numbers; -1: there is none.
  struct Call {
    std::int64_t window = 0;
    bool of_logits = false;  // the rows whose logits are wanted, if all ranks run all rows
    int turn = 0;            // of the ring
    std::int64_t sequences = 0, width = 0;
    std::int64_t table = -1, lengths = -1, holes = -1, offsets = -1;
  };
  const Call& call_for(const model::CachedAttentionArgs& heads, int turn) const;
  PageTable pages_of(const Call& call) const;
  Tensor offsets_of(const Call& call) const {  // of its sequences' queries
    return small(call.offsets, DType::i32, {call.sequences + 1});
  }

  // Of the ring: the pages of a block that travels, and those of this rank.
  std::int64_t most_pages() const { return most_pages_; }
  std::int64_t own_pages() const { return own_pages_; }
  Tensor own_page_list() const { return small(own_page_list_, DType::i32, {own_pages_}); }

 private:
  // Small tensors of a call, as they are made.
  struct Numbers {
    std::vector<std::int32_t> table, lengths, holes, offsets;
    std::int64_t width = 1;  // of the table
  };

  void write_calls(std::span<const std::int64_t> windows);
  void write_whole_rows(std::span<const AttentionGroup> groups, std::int64_t window,
                        bool of_logits);
  void write_ring(const SpreadSequence& sequence, std::int64_t window);
  void keep(const Numbers& numbers, Call call);
  template <typename T>
  std::int64_t add(const std::vector<T>& numbers);
  void upload(Context& ctx);
  // A tensor of small_, on the device.
  Tensor small(std::int64_t place, DType dtype, std::initializer_list<std::int64_t> shape) const;

  const CacheStep& whole_;
  PageShare share_;
  CacheStep local_;
  bool splits_ = false;
  std::vector<std::int64_t> own_rows_;
  Workspace::Frame frame_;           // the device's copy of small_, for the whole pass
  std::vector<std::int32_t> small_;  // 64-bit numbers first
  char* data_ = nullptr;             // small_ on the device
  Device device_;
  std::vector<Call> calls_;
  std::int64_t most_pages_ = 0, own_pages_ = 0;
  std::int64_t own_page_list_ = -1, block_table_ = -1;
};

}  // namespace tessera
