// Draws the tokens of a step where the logits are: on a GPU, ids and log-probabilities are all that
// is copied to the host.
//
//   draws without bias or penalties ---------------------> sample_rows --+--> logprobs --> host
//   draws with --> adjust_logits, by the stream's counts --> sample_rows --> count_tokens
//
// The tokens are those that the draws' Samplers would have drawn.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/count_slots.h"
#include "engine/draw.h"
#include "engine/upload_block.h"
#include "tessera/adjust_logits.h"
#include "tessera/sample_rows.h"

namespace tessera {

class DeviceDraws {
 public:
  // More log-probabilities than this are the host's work.
  static constexpr std::int64_t kMostTop = 128;

  // `max_rows`: as many draws at a time, so that scratch for the rows of a step is enough.
  DeviceDraws(Context& ctx, std::int64_t vocab, std::int64_t max_rows);

  // Draws from logits [rows, vocab] f32, and waits. A draw that is left without tokens is one for
  // its Sampler: no token is possible, or too many log-probabilities are asked for.
  void draw(const Tensor& logits, std::span<Draw> draws);

 private:
  // One token of a draw.
  struct Item {
    std::size_t draw = 0;
    std::int32_t row = 0;
    std::int32_t slot = -1;
    int group = 0;  // the order of a round
    DrawOptions options{};
  };
  // A draw's tokens among the items of a round.
  struct Place {
    std::size_t first = 0, count = 0;
  };

  void collect_first(std::span<Draw> draws);
  void collect_next(std::span<Draw> draws);
  void add_items(std::span<const Draw> draws, std::size_t draw, std::int64_t from,
                 std::int64_t count);
  void upload(std::span<const Draw> draws);
  void run(const Tensor& logits, std::span<const Draw> draws);
  void sample_plain(const Tensor& logits);
  void sample_adjusted(const Tensor& logits);
  void report(const Tensor& logits, std::int64_t top);
  void take(std::span<Draw> draws);
  bool take_item(Draw& draw, std::size_t item);
  Tensor results(std::int64_t place, DType dtype, std::initializer_list<std::int64_t> shape) const;

  Context& ctx_;
  std::int64_t vocab_, max_rows_;
  CountSlots slots_;
  UploadBlock block_;
  Buffer adjusted_;  // f32 [rows, vocab], once it is needed
  Buffer results_;   // ids of all items; then of those that ask for them logprobs, top ids, top
                     // logprobs
  std::vector<std::int32_t> host_results_;
  // Of a round; kept for their memory.
  std::vector<Item> items_;
  std::vector<Place> places_;  // of draws
  std::vector<std::size_t> going_on_;
  std::vector<DrawOptions> options_;
  std::vector<Penalties> penalties_;
  std::vector<std::int32_t> rows_, slot_numbers_, numbers_, bias_begin_, bias_ids_;
  std::vector<float> bias_;
  std::int64_t plain_ = 0, first_reported_ = 0, reported_ = 0, top_ = 0;
  struct {
    std::int64_t rows, options, slots, numbers, penalties, bias_begin, bias_ids, bias;
  } at_{};  // places in the block
};

}  // namespace tessera
