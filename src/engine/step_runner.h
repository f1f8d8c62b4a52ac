// One step of any number of sequences: the model's pass, then a drawn token for each row of logits
// that asks for one. generate() and the Engine both make their tokens here.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/workspace.h"
#include "engine/device_draws.h"
#include "engine/draw.h"
#include "tessera/context.h"
#include "tessera/kv_cache.h"
#include "tessera/model.h"

namespace tessera {

class StepRunner {
 public:
  // Takes scratch memory of the Context, which must have been reserved for the model's steps, for
  // as long as it lives. `max_rows`: the most rows of logits in a step.
  StepRunner(Context& ctx, const Model& model, std::int64_t max_rows);

  // Runs the step through the model.
  void forward(const CacheStep& step);
  // Draws from the logits of the last forward(). Waits for the device.
  void draw(std::span<Draw> draws);

 private:
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
  std::optional<DeviceDraws> device_draws_;
  std::vector<float> host_logits_;  // one row
  std::vector<std::int32_t> host_drawn_;
};

}  // namespace tessera
