// One step of any number of sequences: the model's pass, then a drawn token for each row of logits
// that asks for one. All tokens are made here, in one of two ways:
//
//   forward(step); draw(draws);        waits for the tokens
//   start(step, draws); ... finish()   the tokens are read later, behind the start of the next step
//
// start() ends a step of drawn tokens with advance_step(): the next one needs nothing of the host
// then, unless it has other streams or new pages.
//
// On a GPU, steps that repeat run as CUDA graphs (step_graphs.h), unless the trace is on.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/workspace.h"
#include "engine/ahead_draws.h"
#include "engine/device_draws.h"
#include "engine/draw.h"
#include "engine/step_graphs.h"
#include "tessera/context.h"
#include "tessera/kv_cache.h"
#include "tessera/model.h"

namespace tessera {

class StepRunner {
 public:
  // Takes scratch memory of the Context, which must have been reserved for the model's steps, for
  // as long as it lives. `max_rows`: the most rows of logits in a step.
  StepRunner(Context& ctx, const Model& model, std::int64_t max_rows);

  // Runs the step through the model. Its ids may be names of draws (AheadDraws::name_of) of the
  // last start(). `draws`: all that draw() will be given, or none if that is not known yet.
  void forward(const CacheStep& step, std::span<const Draw> draws = {});
  // Draws from the logits of the last forward(). Waits for the device.
  void draw(std::span<Draw> draws);

  // Whether start() takes such draws: on a GPU, if none of them needs the host.
  bool can_start(std::span<const Draw> draws) const;
  // Enqueues the pass and the draws. Two steps may be under way at a time.
  void start(const CacheStep& step, std::span<const Draw> draws);
  bool is_under_way() const { return ahead_ && ahead_->under_way() > 0; }
  // Waits for the oldest step that was started, and gives its draws their tokens. A draw without a
  // Sampler is passed over.
  void finish(std::span<Draw> draws);

  std::int64_t graph_launches() const { return graphs_.launches(); }
  // Of the options of draws that start() was given; the others a GPU has made itself.
  std::int64_t draw_uploads() const { return ahead_ ? ahead_->uploads() : 0; }

 private:
  void pass(const CacheStep& step, std::int64_t largest_logits);
  bool uses_graph(const CacheStep& step) const;
  void draw_on_host(Draw& draw);
  std::span<const float> host_row(std::int64_t row);
  void draw_on_device(std::span<Draw> draws);
  void draw_alone(Draw& draw);

  Context& ctx_;
  const Model& model_;
  Workspace::Frame frame_;
  Tensor logits_;  // f32 [max_rows, vocab]
  Tensor drawn_;   // i32 [max_rows]
  // On a GPU:
  StepGraphs graphs_;
  std::vector<std::int64_t> shape_;  // of the step that is being run
  std::optional<AheadDraws> ahead_;
  std::optional<DeviceDraws> device_draws_;
  std::vector<float> host_logits_;  // one row
  std::vector<std::int32_t> host_drawn_;
};

}  // namespace tessera
