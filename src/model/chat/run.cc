#include "model/chat/run.h"

#include "core/fail.h"

namespace tessera::model::chat {
namespace {

// The longest published templates take some ten thousand steps for a conversation.
constexpr std::uint64_t kStepsAtStart = 5'000'000, kStepsPerByte = 1;
constexpr std::size_t kMemoryAtStart = std::size_t{64} << 20, kMemoryPerByte = 16;
// A level takes a few hundred bytes of the stack, some thousand under a sanitizer.
constexpr int kMostLevels = 600;

}  // namespace

void refuse_at(Position at, ErrorCode code, const std::string& what) {
  fail(code, "chat template, line {}, column {}: {}", at.line, at.column, what);
}

Run::Run(std::size_t input_bytes)
    : steps_left_(kStepsAtStart + kStepsPerByte * input_bytes),
      memory_(kMemoryAtStart + kMemoryPerByte * input_bytes) {}

void Run::step(std::uint64_t count) {
  if (count > steps_left_) refuse("the template takes too many steps for this conversation");
  steps_left_ -= count;
}

void Run::take(std::size_t bytes) {
  if (bytes > memory_ - used_) {
    refuse("the template needs more than {} MiB for this conversation", memory_ >> 20);
  }
  used_ += bytes;
}

void Run::enter() {
  if (depth_ == kMostLevels) refuse("expressions, blocks and macros stand too deep in each other");
  ++depth_;
}

}  // namespace tessera::model::chat
