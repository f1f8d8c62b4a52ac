// A step over a cache whose pages are spread over several processes (context parallelism). Every
// process has all weights; page j of a pool belongs to one of them (PageShare). Two kinds of steps:
//
//   many tokens of one sequence   each process runs the rows whose keys lie on its pages. Keys and
//                                 values go around a ring, and each row meets those before it:
//
//       pages   0  1  1  0  0  1  1  0         of two processes: under a causal mask both have the
//       rows    |==|  |  |==|==|  |  |==|      same to do, whatever the length
//
//   other steps                   each process runs all rows, and sees its own keys
//
// Partial results merge by (out, lse). What a step's calls of attention() see is written down once,
// on the host, and goes to the device in one copy: layers differ only in their windows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/workspace.h"
#include "model/architectures/forward.h"
#include "model/architectures/spread_sequence.h"
#include "tessera/buffer.h"
#include "tessera/communicator.h"
#include "tessera/model.h"

namespace tessera {

class ContextPass {
 public:
  // `args`: of all ranks, with the step of rank 0, whose pages have numbers of the whole pool.
  // `windows`: of the layers.
  ContextPass(Context& ctx, Communicator& ranks, const ForwardArgs& args,
              std::span<const std::int64_t> windows);

  // This rank's rows, with its own slots. Page tables are still those of the whole pool.
  const CacheStep& step() const { return local_; }
  // The rows are spread over the ranks: model::run_split_pass() runs the pass.
  bool splits_rows() const { return splits_; }
  // Rotates all queries and keys, and stores keys and values of rows on this rank's pages.
  void turn_and_append(Context& ctx, const model::TurnAndAppendArgs& heads) const;
  // Attention over the keys of all ranks.
  void attend(Context& ctx, const model::CachedAttentionArgs& heads) const;
  // The rows whose logits are wanted, of all ranks: [logits, hidden], from this rank's rows of x.
  void gather_logit_rows(Context& ctx, const Tensor& x, const Tensor& wanted) const;
  bool is_first() const { return ranks_.rank() == 0; }

 private:
  // Small tensors of one attention() call, as they are made.
  struct Numbers {
    std::vector<std::int32_t> table, lengths, holes, offsets;
    std::int64_t width = 1;  // of the table
  };
  // The same in small_: where each begins, in numbers; -1: there is none.
  struct Call {
    std::int64_t window = 0;
    bool of_logits = false;  // the rows whose logits are wanted, where all ranks run all rows
    int turn = 0;            // of the ring
    std::int64_t sequences = 0, width = 0;
    std::int64_t table = -1, lengths = -1, holes = -1, offsets = -1;
  };

  void write_calls(std::span<const std::int64_t> windows);
  void upload(Context& ctx);
  void write_whole_rows(std::span<const AttentionGroup> groups, std::int64_t window,
                        bool of_logits);
  void write_ring(const SpreadSequence& sequence, std::int64_t window);
  void keep(const Numbers& numbers, Call call);
  template <typename T>
  std::int64_t add(const std::vector<T>& numbers);
  // A tensor of small_, on the device.
  Tensor small(std::int64_t place, DType dtype, std::initializer_list<std::int64_t> shape) const;
  const Call& call_for(const model::CachedAttentionArgs& heads, int turn) const;
  PageTable pages_of(const Call& call) const;

  void attend_whole_rows(Context& ctx, const model::CachedAttentionArgs& heads) const;
  void attend_split_rows(Context& ctx, const model::CachedAttentionArgs& heads) const;

  Communicator& ranks_;
  const CacheStep& whole_;
  PageShare share_;
  CacheStep local_;
  bool splits_ = false;
  std::vector<std::int64_t> own_rows_;  // with splits_rows(): rows of the whole step
  Workspace::Frame frame_;              // the device's copy of small_, for the whole pass
  std::vector<std::int32_t> small_;     // 64-bit numbers first
  char* data_ = nullptr;                // small_ on the device
  Device device_;
  std::vector<Call> calls_;
  // Of the ring.
  std::int64_t most_pages_ = 0, own_pages_ = 0;  // of any rank; of this one
  std::int64_t own_page_list_ = -1, block_table_ = -1;
};

namespace model {
// The pass over the rows that this rank has; logits on rank 0 alone.
void run_split_pass(Context& ctx, const Model& model, const ForwardArgs& args,
                    const PassParts& parts);
}  // namespace model

}  // namespace tessera
