// A step over a cache whose pages are spread over several processes (context parallelism). Every
// process has all weights; page j of a pool belongs to one of them (PageShare). Two kinds of steps:
//
//   many tokens of one sequence   each process runs the rows whose keys lie on its pages. Keys and
//                                 values go around a ring, and each row meets those before it:
//
//       pages   0  1  1  0  0  1  1  0         with two processes: under a causal mask both have
//       rows    |==|  |  |==|==|  |  |==|      the same work, whatever the length
//
//   other steps                   each process runs all rows, and sees its own keys
//
// Partial results merge by (out, lse). SpreadStep writes down what the calls of attention() see;
// ContextPass runs them.
#pragma once

#include <cstdint>
#include <span>

#include "model/architectures/forward.h"
#include "model/architectures/spread_step.h"
#include "tessera/communicator.h"
#include "tessera/model.h"

namespace tessera {

class ContextPass {
 public:
  // Arguments as for SpreadStep.
  ContextPass(Context& ctx, Communicator& ranks, const ForwardArgs& args,
              std::span<const std::int64_t> windows)
      : ranks_(ranks), spread_(ctx, ranks.size(), args, windows) {}

  // This rank's rows, with its own slots. Page tables are still those of the whole pool.
  const CacheStep& step() const { return spread_.local(); }
  // The rows are spread over the ranks: model::run_split_pass() runs the pass.
  bool splits_rows() const { return spread_.splits_rows(); }
  // Rotates all queries and keys, and stores keys and values of rows on this rank's pages.
  void rotate_and_append(Context& ctx, const model::RotateAndAppendArgs& heads) const;
  // Attention over the keys of all ranks.
  void attend(Context& ctx, const model::CachedAttentionArgs& heads) const;
  // The rows whose logits are wanted, of all ranks: [logits, hidden], from this rank's rows of x.
  void gather_logit_rows(Context& ctx, const Tensor& x, const Tensor& wanted) const;
  bool is_first() const { return ranks_.rank() == 0; }

 private:
  void attend_whole_rows(Context& ctx, const model::CachedAttentionArgs& heads) const;
  void attend_split_rows(Context& ctx, const model::CachedAttentionArgs& heads) const;

  Communicator& ranks_;
  SpreadStep spread_;
};

namespace model {
// The pass over the rows that this rank has. Only rank 0 gets logits.
void run_split_pass(Context& ctx, const Model& model, const ForwardArgs& args,
                    const PassParts& parts);
}  // namespace model

}  // namespace tessera
