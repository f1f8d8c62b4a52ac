#include "model/chat/run.h"

#include <algorithm>

#include "core/fail.h"
#include "model/checkpoint/quote.h"

namespace tessera::model::chat {
namespace {

// The longest published templates take some ten thousand steps for a conversation.
constexpr std::uint64_t kStepsAtStart = 5'000'000, kStepsPerByte = 1;
constexpr std::size_t kMemoryAtStart = std::size_t{64} << 20, kMemoryPerByte = 16;
// A level takes a few hundred bytes of the stack, some thousand under a sanitizer.
constexpr int kMostLevels = 600;
constexpr std::size_t kMostReasonBytes = 400;

}  // namespace

// The sentence may quote names and strings of the template: they may be long, and hold anything.
void refuse_at(Position at, ErrorCode code, const std::string& what) {
  std::size_t size = std::min(what.size(), kMostReasonBytes);
  while (size < what.size() && (static_cast<unsigned char>(what[size]) & 0xC0) == 0x80) --size;
  fail(code, "chat template, line {}, column {}: {}{}", at.line, at.column,
       printable(what.substr(0, size)), size < what.size() ? "..." : "");
}

RunLimits RunLimits::of_input(std::size_t bytes) {
  return {kStepsAtStart + kStepsPerByte * bytes, kMemoryAtStart + kMemoryPerByte * bytes};
}

void Run::step(std::uint64_t count) {
  if (count > limits_.steps) refuse("the template takes too many steps for this conversation");
  limits_.steps -= count;
}

void Run::take(std::size_t bytes) {
  if (bytes > limits_.memory - used_) {
    refuse("the template needs more than {} MiB for this conversation", limits_.memory >> 20);
  }
  used_ += bytes;
}

void Run::enter() {
  if (depth_ == kMostLevels) refuse("expressions, blocks and macros are nested too deep");
  ++depth_;
}

}  // namespace tessera::model::chat
