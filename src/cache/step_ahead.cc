#include "cache/step_ahead.h"

#include <cstring>

namespace tessera {

bool StepAhead::begin(const CacheStep& step, std::int64_t bytes) {
  const bool is_there =
      is_advanced_ && bytes == bytes_ &&
      std::memcmp(copy_.data(), step.host_block, static_cast<std::size_t>(bytes)) == 0;
  is_advanced_ = false;
  step_ = &step;
  bytes_ = bytes;
  if (step.ahead != nullptr) {
    std::memcpy(copy_.data(), step.host_block, static_cast<std::size_t>(bytes));
  }
  return is_there;
}

AdvanceStepArgs StepAhead::args() const {
  const std::int64_t words = bytes_ / size_of(DType::i32);
  void* const block = const_cast<char*>(step_->device_block);
  return {.rows = step_->rows,
          .positions = step_->positions,
          .slots = step_->slots,
          .block = Tensor(block, DType::i32, {words}, step_->rows.device)};
}

void StepAhead::advanced() {
  const auto at = [&](const Tensor& tensor) {
    return copy_.data() + (static_cast<const char*>(tensor.data) - step_->device_block);
  };
  const StepRowTensors tensors{.positions = reinterpret_cast<std::int64_t*>(at(step_->positions)),
                               .slots = reinterpret_cast<std::int32_t*>(at(step_->slots)),
                               .words = reinterpret_cast<std::int32_t*>(copy_.data())};
  advance_rows(
      {reinterpret_cast<StepRow*>(at(step_->rows)), static_cast<std::size_t>(step_->tokens)},
      tensors);
  is_advanced_ = true;
}

}  // namespace tessera
