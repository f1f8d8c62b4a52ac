// Draws whose tokens are read a step later. The next step takes them where they lie, so the host
// need not know them to launch it (tessera/embedding.h):
//
//   stream   | pass t | draw t | ids | pass t+1 | draw t+1 | ids |
//   host       launch t+1 ----------^   read t, deliver    ^ launch t+2
//
// A step that ends with advance_step() writes its ids into pinned memory itself; those of any other
// step are copied there.
//
// Only for draws that need nothing of the host: no drafts, log-probabilities, bias or penalties.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/download.h"
#include "engine/draw.h"
#include "engine/upload_block.h"
#include "ops/advance_step.h"
#include "tessera/sample_rows.h"

namespace tessera {

class AheadDraws {
 public:
  AheadDraws(Context& ctx, std::int64_t max_rows);

  static bool takes(const Draw& draw);
  // What stands for the token of draw i, until the next draws.
  static std::int32_t name_of(std::size_t i) { return -1 - static_cast<std::int32_t>(i); }
  // What those names refer to.
  Tensor drawn() const { return drawn_.tensor(); }

  // Tells the device what to draw, unless it has counted on to that itself. There are `rows` draws
  // in all, so that steps of one shape have as many; those behind the last are nobody's.
  void send(std::span<const Draw> draws, std::int64_t rows);
  // Enqueues them. This is what a graph records.
  void sample(const Tensor& logits);
  // What sample() depends on, besides the logits.
  void add_to_shape(std::vector<std::int64_t>& shape) const;
  // Adds what advance_step() does for the draws that were sent: it makes their options those of the
  // next draws, and sends the tokens to the host.
  void add_to(AdvanceStepArgs& step);
  // Enqueued behind sample(): the copy of the tokens to the host, or advance_step().
  void fetch();
  void fetch_advanced();
  std::int64_t uploads() const { return uploads_; }  // by send(), so far

  // The fetch()es that nobody has taken yet, at most two.
  int under_way() const { return (under_way_[0] ? 1 : 0) + (under_way_[1] ? 1 : 0); }
  // Waits for the oldest of them, and gives each draw its token; one without a Sampler is passed
  // over. `drawn` stays empty if no token was possible.
  void take(std::span<Draw> draws);

 private:
  void add_under_way(Download& download) { under_way_[under_way_[0] ? 1 : 0] = &download; }

  Context& ctx_;
  UploadBlock block_;
  Buffer drawn_;  // i32 [max_rows]
  Buffer turn_;   // i64 [1]
  // What comes by copies, and what comes from advance_step(), each in turn.
  Download copies_[2], ring_[2];
  std::int64_t copies_turn_ = 0, ring_turn_ = 0;
  Download* under_way_[2] = {};  // the oldest first
  // Of the draws that were sent last.
  std::int64_t count_ = 0, rows_at_ = 0, options_at_ = 0;
  SampleRowsArgs::Kind kind_ = SampleRowsArgs::Kind::any;
  std::vector<std::int32_t> rows_, device_rows_;
  std::vector<DrawOptions> options_, device_options_;  // device_: what the device has at its end
  bool is_counted_ = false;                            // and whether that is known
  std::int64_t uploads_ = 0;
};

}  // namespace tessera
