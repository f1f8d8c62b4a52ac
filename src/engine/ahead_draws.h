// Draws whose tokens are read a step later. The next step takes them where they lie, so the host
// need not know them to launch it (tessera/embedding.h):
//
//   stream   | pass t | draw t | copy | pass t+1 | draw t+1 | copy |
//   host       launch t+1 -----------^   read t, deliver     ^ launch t+2
//
// Only for draws that need nothing of the host: no drafts, log-probabilities, bias or penalties.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/download.h"
#include "engine/draw.h"
#include "engine/upload_block.h"
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

  // Tells the device what to draw. There are `rows` draws in all, so that steps of one shape have
  // as many; those behind the last are nobody's.
  void send(std::span<const Draw> draws, std::int64_t rows);
  // Enqueues them. This is what a graph records.
  void sample(const Tensor& logits);
  // What sample() depends on, besides the logits.
  void add_to_shape(std::vector<std::int64_t>& shape) const;
  // Starts the copy of the tokens to the host.
  void fetch();

  // The fetch()es that nobody has taken yet, at most two.
  int under_way() const { return under_way_; }
  // Waits for the oldest of them, and gives each draw its token; one without a Sampler is passed
  // over. `drawn` stays empty if no token was possible.
  void take(std::span<Draw> draws);

 private:
  Context& ctx_;
  UploadBlock block_;
  Buffer drawn_;  // i32 [max_rows]
  Download downloads_[2];
  int next_ = 0, under_way_ = 0;  // the download that the next fetch() uses
  // Of the draws that were sent last.
  std::int64_t count_ = 0, rows_at_ = 0, options_at_ = 0;
  SampleRowsArgs::Kind kind_ = SampleRowsArgs::Kind::any;
  std::vector<std::int32_t> rows_;
  std::vector<DrawOptions> options_;
};

}  // namespace tessera
