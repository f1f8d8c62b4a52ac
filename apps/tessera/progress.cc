#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace tessera::app {
namespace {

constexpr auto kQuiet = std::chrono::milliseconds(300);    // shorter work shows nothing
constexpr auto kRefresh = std::chrono::milliseconds(100);  // faster than the eye needs
constexpr int kBarWidth = 30;                              // of the bar

}  // namespace

Progress::Progress(std::string what)
    : what_(std::move(what)),
      on_terminal_(isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      last_(start_) {}

void Progress::clear() {
  if (!shown_) return;
  shown_ = false;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

void Progress::update(std::int64_t done, std::int64_t total, const std::string& detail) {
  if (!on_terminal_ || total <= 0) return;
  const Clock::time_point now = Clock::now();
  if (now - start_ < kQuiet || now - last_ < kRefresh) return;
  last_ = now;
  shown_ = true;
  const double share = std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  const int filled = static_cast<int>(share * kBarWidth);
  std::string left;
  if (share > 0.02) {  // before that it is a guess
    const double seconds = std::chrono::duration<double>(now - start_).count();
    left = fmt::format(", {:.0f} s left", seconds / share * (1 - share));
  }
  fmt::print(stderr, "\r{} [{}{}] {:.0f}%{}{}{}\033[K", what_, std::string(filled, '='),
             std::string(kBarWidth - filled, ' '), 100 * share, detail.empty() ? "" : ", ", detail,
             left);
  std::fflush(stderr);
}

std::function<void(std::int64_t, std::int64_t)> Progress::callback() {
  return [this](std::int64_t done, std::int64_t total) { update(done, total); };
}

}  // namespace tessera::app
