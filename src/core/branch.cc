#include "core/branch.h"

#include <exception>

#include "core/cuda_runtime.h"

namespace tessera {

Branch::Branch(Context& ctx, bool wanted) : ctx_(ctx) {
  if (!wanted || ctx.device().is_cpu() || ctx.workspace().is_counting()) return;
  cuda::BranchStream branch = cuda::begin_branch(ctx);
  scratch_.emplace(ctx.workspace(), *branch.scratch);
  own_stream_ = ctx.stream_;
  ctx.stream_ = branch.stream;
  state_ = State::open;
}

Branch::~Branch() {
  if (state_ == State::none) return;
  try {
    end();
    join();
  } catch (const std::exception&) {
    // A fault that keeps streams from being ordered is reported when someone waits for the stream.
    state_ = State::none;
  }
}

void Branch::end() {
  if (state_ != State::open) return;
  state_ = State::ended;
  scratch_.reset();
  ctx_.stream_ = own_stream_;
  cuda::end_branch(ctx_);
}

void Branch::join() {
  if (state_ != State::ended) return;
  state_ = State::none;
  cuda::join_branch(ctx_);
}

}  // namespace tessera
