// A progress bar on standard error: on a terminal only, and only for work that takes a while.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace tessera::app {

class Progress {
 public:
  // "loading"
  explicit Progress(std::string what);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `detail`: behind the share, such as "120 tokens/s".
  void update(std::int64_t done, std::int64_t total, const std::string& detail = {});
  // Removes the bar from the screen.
  void clear();
  // As a function, for options that take one. It must not outlive this object.
  std::function<void(std::int64_t done, std::int64_t total)> callback();

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  bool on_terminal_;
  bool shown_ = false;
  Clock::time_point start_, last_;
};

}  // namespace tessera::app
