// One forward pass over the next tokens of many sequences of a PagePool: which rows there are,
// where their keys go, what they see, and whose logits are wanted.
//
// Threads: one at a time, that of the pool.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tessera/attention.h"
#include "tessera/context.h"
#include "tessera/mask.h"
#include "tessera/page_pool.h"
#include "tessera/tensor.h"

namespace tessera {

class StepAhead;  // src/cache/step_ahead.h

// A run of rows that one attention() call serves: [sequences, rows / sequences, heads, dim], or
// [1, rows, heads, dim] with q_offsets where the sequences have different numbers of queries.
struct AttentionGroup {
  std::int64_t first_row = 0, rows = 0;
  std::int64_t sequences = 1;
  Tensor q_offsets{};         // i32 [sequences + 1], or none
  PageTable pages{};          // of the sequences
  Mask mask{};                // what the policy lets a query see, causal included
  bool rope_on_read = false;  // keys are stored before RoPE
  bool many_queries = false;  // AttentionArgs::many_queries
  std::int64_t max_keys = 0;  // of the longest sequence
};

// What one forward pass over the next tokens of some sequences writes and reads. The small tensors
// are on the pool's device.
//
//   rotate q (and k, in groups without rope_on_read) by `positions`
//   kv_append(k, v, slots) into the pool's keys(layer), values(layer)
//   attention() for each group
//
// Rows are sorted: first those of sequences with few tokens, then the longer chunks. A part's rows
// stay together, in order.
struct CacheStep {
  const PagePool* pool = nullptr;
  std::int64_t tokens = 0;                // rows
  Tensor ids{};                           // i32 [tokens]
  Tensor positions{};                     // i64 [tokens]
  Tensor slots{};                         // i32 [tokens]: page * page_size + row, of the pool
  std::vector<AttentionGroup> groups{};   // all rows, in order
  std::int64_t few_rows = 0;              // rows of parts of few tokens: CacheBatch::kFewTokens
  std::vector<std::int64_t> row_begin{};  // the first row of each part, in the order given

  // The rows whose logits are wanted. They have their own order, short parts first.
  std::int64_t logits = 0;      // how many
  std::int64_t few_logits = 0;  // of parts that want at most CacheBatch::kFewTokens logits
  // If these rows are neighbours in rising order: the first of them, and logit_rows is empty. -1 if
  // they must be gathered.
  std::int64_t first_logit_row = 0;
  Tensor logit_rows{};  // i32 [logits]: rows of the step
  std::vector<std::int64_t>
      logit_begin{};  // each part's first row of logits, in the order given; -1: none
  std::vector<AttentionGroup> logit_groups{};  // of these rows alone, counted among the logits

  // A row's bits do not depend on the other rows of the step (LinearArgs::fixed_rows).
  bool batch_invariant = false;

  // All small tensors lie in one block, on the pool's device and on the host. It begins here. The
  // host does not know the ids of tokens that a GPU draws (ForwardArgs::drawn).
  const char *device_block = nullptr, *host_block = nullptr;
  // A small tensor of the step, as the host wrote it.
  Tensor on_host(const Tensor& tensor) const;

  // For a step with one token of each stream, all drawn by the device: `rows` holds what each row
  // is made from (src/core/step_row.h), and `ahead` turns the tensors into those of the next step,
  // in place. Empty and null for any other step.
  Tensor rows{};  // i64 [tokens, kStepRowWords]
  StepAhead* ahead = nullptr;

  bool wants_all_logits() const { return logits == tokens && first_logit_row == 0; }
};

struct CacheBatchLimits {
  std::int64_t max_tokens = 0;  // of a step, of all its parts together
  std::int64_t max_sequences = 0;
  std::int64_t max_pages_of_a_sequence = 0;
  // The width of a page table is what its longest sequence needs, rounded up to a multiple of this.
  // A GPU plans its work by the width, so few widths mean few plans.
  std::int64_t width_step = 8;
  // Only the multiples 1, 2, 3, 4, 6, 8, 12, 16, ...: few widths even for long sequences.
  bool few_widths = false;
  // A step in which every sequence has one token and wants its logits gets padding rows, up to the
  // next power of two. Few shapes then occur, and a GPU can replay recorded steps. A padding row
  // has no keys and writes none; its logits mean nothing.
  bool pads = false;
  // On a GPU: kernels and the order of their sums do not depend on the number of rows of a step.
  // The CPU always works this way. With 8-bit activations that costs nothing. With exact ones, and
  // with dense or fp8 weights, few rows have other kernels than many: a step of streams beside a
  // chunk of a prompt reads these weights twice.
  bool batch_invariant = false;
};

// Makes steps, in memory that is allocated once.
class CacheBatch {
 public:
  // A sequence with up to this many tokens in a step counts as one of few. Those come first.
  static constexpr std::int64_t kFewTokens = 16;

  struct Part {
    CacheSequence* sequence = nullptr;
    std::span<const std::int32_t> ids{};  // its next tokens, at most its step_size()
    std::int64_t logit_rows = 0;          // how many of its last tokens want logits
    // True for tokens of a prompt. The CPU then computes them as it computes many tokens, however
    // few there are, so that their bits do not depend on where the prompt was cut. The logits of
    // the last token have the bits of a single token. If the prompt is longer than its window or
    // sinks, this holds within rounding only.
    bool is_prompt = false;
  };

  CacheBatch(Context& ctx, PagePool& pool, const CacheBatchLimits& limits);
  ~CacheBatch();
  CacheBatch(CacheBatch&&) noexcept;
  CacheBatch& operator=(CacheBatch&&) noexcept;

  // Makes room for the next tokens of these sequences; a sequence may be in one part only. The
  // result is valid until the next call. Throws if a part is refused or pages run out
  // (out_of_memory); then no sequence has changed. The tokens count as seen once it returns. If the
  // pass fails half way, keys that later tokens would see were never written: clear() or truncate()
  // the sequences then.
  const CacheStep& step(Context& ctx, std::span<const Part> parts);
  // Call this after launching the pass: pages that the pass filled can be found from now on. Ids
  // that stand for drawn tokens must be known by then (CacheSequence::set_id).
  void commit();
  // Call this for a sequence that ends before commit().
  void forget(const CacheSequence& sequence);

  const CacheBatchLimits& limits() const;
  // Steps that the host has uploaded. A GPU has made all others itself (CacheStep::ahead).
  std::int64_t uploads() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Host and device memory of a batch with these limits.
std::int64_t cache_batch_bytes(const CacheBatchLimits& limits);

}  // namespace tessera
