// One step of any number of sequences: the model's pass, then a drawn token for each row of logits
// that asks for one. generate() and the Engine both make their tokens here.
#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include "core/workspace.h"
#include "tessera/context.h"
#include "tessera/kv_cache.h"
#include "tessera/model.h"
#include "tessera/sampling.h"

namespace tessera {

// Draws the token after a row of logits. With drafts, row i + 1 holds the logits after drafts[i]:
// as long as the drawn token is the draft, the next row is drawn from as well. So `drawn` is what
// drawing one token at a time would have given, and its last token alone is new to the model.
struct Draw {
  Sampler* sampler = nullptr;  // has seen the tokens before; accepts those that are drawn
  std::int64_t row = 0;        // of the logits
  std::span<const std::int32_t> drafts{};
  std::int64_t top_logprobs = -1;  // as in GenerateOptions
  std::vector<Sampled>* drawn = nullptr;
  std::exception_ptr error{};  // set if this row has no token; other rows are not touched
};

class StepRunner {
 public:
  // Takes scratch memory of the Context, which must have been reserved for the model's steps, for
  // as long as it lives. `max_rows`: the most rows of logits in a step. `max_draws`: the most
  // tokens that are drawn from them; draws may share a row.
  StepRunner(Context& ctx, const Model& model, std::int64_t max_rows, std::int64_t max_draws);

  // Runs the step through the model.
  void forward(const CacheStep& step);
  // Draws from the logits of the last forward(). Waits for the device.
  void draw(std::span<Draw> draws);

 private:
  void draw_on_host(Draw& draw);
  std::span<const float> host_row(std::int64_t row);
  void draw_on_device(std::span<Draw> draws);
  static void accept(Draw& draw, const std::int32_t* ids);

  Context& ctx_;
  const Model& model_;
  Workspace::Frame frame_;
  Tensor logits_;                         // f32 [max_rows, vocab]
  Tensor drawn_;                          // i32 [max_draws]
  std::vector<float> host_logits_;        // on a GPU: one row
  std::vector<std::int32_t> host_drawn_;  // on a GPU
};

}  // namespace tessera
