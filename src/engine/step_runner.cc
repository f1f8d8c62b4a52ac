#include "engine/step_runner.h"

#include <algorithm>

#include "cache/step_ahead.h"
#include "core/fail.h"
#include "core/thread_pool.h"
#include "core/traced_work.h"
#include "tessera/buffer.h"
#include "tessera/sample.h"

namespace tessera {

StepRunner::StepRunner(Context& ctx, const Model& model, std::int64_t max_rows)
    : ctx_(ctx), model_(model), frame_(ctx.workspace()) {
  const std::int64_t vocab = model.config().vocab;
  logits_ = frame_.take(DType::f32, {max_rows, vocab});
  drawn_ = frame_.take(DType::i32, {max_rows});
  if (ctx.device().is_cpu()) return;
  ahead_.emplace(ctx, max_rows);
  device_draws_.emplace(ctx, vocab, max_rows);
  host_logits_.resize(static_cast<std::size_t>(vocab));
  host_drawn_.resize(static_cast<std::size_t>(max_rows));
}

// ---- the pass -----------------------------------------------------------------------------------

void StepRunner::pass(const CacheStep& step, std::int64_t largest_logits) {
  const std::int64_t rows = step.logits;
  model_.forward(ctx_, {.step = &step,
                        .logits = rows > 0 ? logits_.slice(0, 0, rows) : Tensor{},
                        .drawn = ahead_ ? ahead_->drawn() : Tensor{},
                        .largest_logits = largest_logits});
}

bool StepRunner::uses_graph(const CacheStep& step) const {
  return ctx_.device().is_cuda() && ctx_.graphs() && !ctx_.trace().enabled() &&
         is_decode_step(step);
}

void StepRunner::forward(const CacheStep& step, std::span<const Draw> draws) {
  const std::int64_t largest = largest_logits_of(draws);
  if (!uses_graph(step)) return pass(step, largest);
  shape_.clear();
  add_to_shape(step, shape_);
  graphs_.run(ctx_, shape_, [&] { pass(step, largest); });
}

// ---- steps whose tokens are read later ----------------------------------------------------------

bool StepRunner::can_start(std::span<const Draw> draws) const {
  return ahead_ && !ctx_.trace().enabled() &&
         std::all_of(draws.begin(), draws.end(), AheadDraws::takes);
}

void StepRunner::start(const CacheStep& step, std::span<const Draw> draws) {
  const bool graph = uses_graph(step);
  ahead_->send(draws, graph ? step.logits : 0);
  const auto work = [&] {
    pass(step, 0);
    ahead_->sample(logits_);
    if (step.ahead == nullptr) return;
    AdvanceStepArgs next = step.ahead->args();
    ahead_->add_to(next);
    next.settled = true;  // embedding, which does not overlap, comes behind the last call
    advance_step(ctx_, next);
  };
  if (graph) {
    shape_.clear();
    add_to_shape(step, shape_);
    ahead_->add_to_shape(shape_);
    graphs_.run(ctx_, shape_, work);
  } else {
    work();
  }
  if (step.ahead == nullptr) return ahead_->fetch();
  step.ahead->advanced();
  ahead_->fetch_advanced();
}

void StepRunner::finish(std::span<Draw> draws) {
  ahead_->take(draws);
  for (Draw& draw : draws) {
    if (draw.sampler == nullptr || !draw.drawn->empty()) continue;
    try {
      model_.check_files();  // weights that were written over explain logits that are no numbers
      fail(ErrorCode::invalid_argument,
           "the model's logits are NaN, +inf or all -inf: its numbers have left their range; try "
           "f32 "
           "or bf16, or check the checkpoint");
    } catch (...) {
      draw.error = std::current_exception();
    }
  }
}

// ---- draws that are waited for ------------------------------------------------------------------

void StepRunner::draw(std::span<Draw> draws) {
  if (!ctx_.device().is_cpu()) return draw_on_device(draws);
  const TracedWork drawing(ctx_.trace(), "draw");
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

// A GPU draws where the logits are.
void StepRunner::draw_on_device(std::span<Draw> draws) {
  const bool one_plain_draw = draws.size() == 1 && draws.front().top_logprobs < 0 &&
                              draws.front().sampler->next_draw().has_value();
  if (one_plain_draw) {
    draw_alone(draws.front());
  } else {
    device_draws_->draw(logits_, draws);
  }
  // The Sampler draws what needs the host, and names the logit that makes a draw impossible.
  for (Draw& draw : draws) {
    if (draw.drawn->empty()) draw_on_host(draw);
  }
}

// A single draw without bias, penalties and log-probabilities needs no upload.
void StepRunner::draw_alone(Draw& draw) {
  SampleArgs args = *draw.sampler->next_draw();
  const std::int64_t rows = 1 + std::ssize(draw.drafts);
  args.logits = logits_.slice(0, draw.row, draw.row + rows);
  args.ids = drawn_.slice(0, 0, rows);
  sample(ctx_, args);
  copy_bytes(ctx_, host_drawn_.data(), Device::cpu(), args.ids.data, ctx_.device(),
             args.ids.bytes());
  draw.drawn->clear();
  for (std::size_t i = 0; i <= draw.drafts.size() && host_drawn_[i] >= 0; ++i) {
    const std::int32_t id = host_drawn_[i];
    draw.sampler->accept(id);
    draw.drawn->push_back({.token = {.id = id, .logprob = 0}});
    if (i < draw.drafts.size() && id != draw.drafts[i]) return;
  }
}

}  // namespace tessera
