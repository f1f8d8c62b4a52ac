// One rendering of a template: what it may still use, and its place in the template.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "tessera/error.h"

namespace tessera::model::chat {

// A place in the source, both numbers from 1; columns count characters.
struct Position {
  std::uint32_t line = 1, column = 1;
};

// "chat template, line 3, column 14: what is wrong"
[[noreturn]] void refuse_at(Position at, ErrorCode code, const std::string& what);

// What a rendering may use.
struct RunLimits {
  std::uint64_t steps;
  std::size_t memory;  // bytes

  // Both grow with the input of the template.
  static RunLimits of_input(std::size_t bytes);
};

class Run {
 public:
  explicit Run(RunLimits limits) : limits_(limits) {}
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // The place that is running now, for messages.
  Position at{};

  // Counts work. Work on a string counts by the number of its bytes.
  void step(std::uint64_t count = 1);
  void work_on(std::size_t bytes) { step(1 + bytes / kBytesPerStep); }

  // Memory that values hold.
  void take(std::size_t bytes);
  void give_back(std::size_t bytes) { used_ -= bytes; }

  // How deep expressions, blocks and macros are nested.
  void enter();
  void leave() { --depth_; }

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    refuse_at(at, ErrorCode::invalid_argument, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  static constexpr std::size_t kBytesPerStep = 512;

  RunLimits limits_;  // steps: those that are left
  std::size_t used_ = 0;
  int depth_ = 0;
};

// One level of depth, for as long as it lives.
class Level {
 public:
  explicit Level(Run& run) : run_(run) { run_.enter(); }
  ~Level() { run_.leave(); }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Run& run_;
};

// Some memory of a run, given back at its end. That of a template's own literals belongs to no run.
class Charge {
 public:
  Charge() = default;
  Charge(Run& run, std::size_t bytes) : run_(&run) { grow(bytes); }
  ~Charge() {
    if (run_ != nullptr) run_->give_back(bytes_);
  }
  Charge(Charge&& other) noexcept
      : run_(std::exchange(other.run_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Charge& operator=(Charge&& other) noexcept {
    std::swap(run_, other.run_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  void grow(std::size_t bytes) {
    if (run_ == nullptr) return;
    run_->take(bytes);
    bytes_ += bytes;
  }
  void shrink(std::size_t bytes) {
    if (run_ == nullptr) return;
    run_->give_back(bytes);
    bytes_ -= bytes;
  }

 private:
  Run* run_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace tessera::model::chat
