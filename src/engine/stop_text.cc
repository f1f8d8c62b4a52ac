#include "engine/stop_text.h"

#include <algorithm>
#include <utility>

#include "core/fail.h"

namespace tessera {

StopText::StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {
  if (std::any_of(stops_.begin(), stops_.end(), [](const auto& s) { return s.empty(); })) {
    fail(ErrorCode::invalid_argument,
         "a stop string is empty; it must have at least one character");
  }
}

std::string StopText::push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  std::size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  stopped_ = first != std::string::npos;
  const std::size_t certain = stopped_ ? first : held_.size() - held_length();
  std::string out = held_.substr(0, certain);
  held_.erase(0, certain);
  return out;
}

std::string StopText::finish() { return stopped_ ? std::string() : std::exchange(held_, {}); }

// The length of the longest end of held_ that begins a stop string.
std::size_t StopText::held_length() const {
  std::size_t longest = 0;
  for (const std::string& stop : stops_) {
    // A whole stop string would have been found already.
    for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > longest; --n) {
      if (held_.ends_with(std::string_view(stop).substr(0, n))) longest = n;
    }
  }
  return longest;
}

}  // namespace tessera
