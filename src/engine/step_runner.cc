#include "engine/step_runner.h"

#include <algorithm>
#include <optional>

#include "core/thread_pool.h"
#include "tessera/buffer.h"
#include "tessera/sample.h"

namespace tessera {

StepRunner::StepRunner(Context& ctx, const Model& model, std::int64_t max_rows,
                       std::int64_t max_draws)
    : ctx_(ctx), model_(model), frame_(ctx.workspace()) {
  const std::int64_t vocab = model.config().vocab;
  logits_ = frame_.take(DType::f32, {max_rows, vocab});
  drawn_ = frame_.take(DType::i32, {max_draws});
  if (ctx.device().is_cpu()) return;
  host_logits_.resize(static_cast<std::size_t>(vocab));
  host_drawn_.resize(static_cast<std::size_t>(max_draws));
}

void StepRunner::forward(const CacheStep& step) {
  const std::int64_t rows = step.logits;
  model_.forward(ctx_, {.step = &step, .logits = rows > 0 ? logits_.slice(0, 0, rows) : Tensor{}});
}

void StepRunner::draw(std::span<Draw> draws) {
  if (!ctx_.device().is_cpu()) return draw_on_device(draws);
  ctx_.pool().parallel_for(std::ssize(draws), [&](std::int64_t i, int) {
    draw_on_host(draws[static_cast<std::size_t>(i)]);
  });
}

// Draws row after row, as long as drafts are right.
void StepRunner::draw_on_host(Draw& draw) {
  draw.drawn->clear();
  try {
    for (std::size_t i = 0; i <= draw.drafts.size(); ++i) {
      const std::span<const float> logits = host_row(draw.row + static_cast<std::int64_t>(i));
      draw.drawn->push_back(draw.sampler->sample(logits, draw.top_logprobs));
      if (i < draw.drafts.size() && draw.drawn->back().token.id != draw.drafts[i]) return;
    }
  } catch (...) {
    draw.error = std::current_exception();
    try {
      model_.check_files();  // weights that were written over explain logits that are no numbers
    } catch (...) {
      draw.error = std::current_exception();
    }
  }
}

std::span<const float> StepRunner::host_row(std::int64_t row) {
  const Tensor logits = logits_.select(0, row);
  const std::size_t vocab = static_cast<std::size_t>(logits.numel());
  if (ctx_.device().is_cpu()) return {logits.ptr<const float>(), vocab};
  copy_bytes(ctx_, host_logits_.data(), Device::cpu(), logits.data, ctx_.device(), logits.bytes());
  return host_logits_;
}

// A GPU draws where the logits are. Rows are copied to the host only if bias, penalties or logprobs
// need all of them.
void StepRunner::draw_on_device(std::span<Draw> draws) {
  std::int64_t used = 0;  // several draws may share a row, so ids are numbered on their own
  for (const Draw& draw : draws) {
    std::optional<SampleArgs> args = draw.sampler->next_draw();
    const std::int64_t rows = 1 + std::ssize(draw.drafts);
    if (args && draw.top_logprobs < 0) {
      args->logits = logits_.slice(0, draw.row, draw.row + rows);
      args->ids = drawn_.slice(0, used, used + rows);
      sample(ctx_, *args);
    }
    used += rows;
  }
  copy_bytes(ctx_, host_drawn_.data(), Device::cpu(), drawn_.data, ctx_.device(),
             used * size_of(DType::i32));
  const std::int32_t* ids = host_drawn_.data();
  for (Draw& draw : draws) {
    // The Sampler draws what needs the host, and names the logit that makes a draw impossible.
    if (draw.top_logprobs >= 0 || !draw.sampler->next_draw() || ids[0] < 0) {
      draw_on_host(draw);
    } else {
      accept(draw, ids);
    }
    ids += 1 + draw.drafts.size();
  }
}

// Takes ids that the device has drawn, as long as drafts are right.
void StepRunner::accept(Draw& draw, const std::int32_t* ids) {
  draw.drawn->clear();
  for (std::size_t i = 0; i <= draw.drafts.size() && ids[i] >= 0; ++i) {
    draw.sampler->accept(ids[i]);
    draw.drawn->push_back({.token = {.id = ids[i], .logprob = 0}});
    if (i < draw.drafts.size() && ids[i] != draw.drafts[i]) return;
  }
}

}  // namespace tessera
