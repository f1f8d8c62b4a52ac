// Random requests and settings for the simulation of the scheduler.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <tuple>

#include "engine/scheduler.h"
#include "support/fake_pages.h"

namespace tessera::test {

// SplitMix64: the same numbers everywhere.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed) {}
  std::int64_t below(std::int64_t n) {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return static_cast<std::int64_t>((z ^ (z >> 31)) % static_cast<std::uint64_t>(n));
  }
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least + below(most - least + 1);
  }
  bool percent(std::int64_t n) { return below(100) < n; }
  std::int64_t one_of(std::initializer_list<std::int64_t> values) {
    return values.begin()[below(static_cast<std::int64_t>(values.size()))];
  }

 private:
  std::uint64_t state_;
};

struct SimulatedRequest {
  engine::RequestId id = 0;
  FakeContent content{};
  int priority = 0;
  std::int64_t ticket = 0, serial = 0;  // arrival; a fork has its parent's ticket
  std::int64_t prompt = 0, target = 0;  // tokens; it finishes when it has `target`
  std::int64_t forks = 0;               // to come
  bool bounded = true;
  std::int64_t known = 0, stored = 0, drafted = 0;
  bool running = false;
  std::int64_t since = 0, waited = 0;  // in the queue since that step; steps of earlier stays
  std::int64_t due = 0;
  bool overdue = false;

  std::int64_t pending() const { return known - stored; }
  // Smaller is better.
  auto merit() const {
    return overdue ? std::tuple{0, due, serial, serial}
                   : std::tuple{1, -static_cast<std::int64_t>(priority), ticket, serial};
  }
};

// Of the scheduler, the pool and the load.
struct SimulatedSetting {
  engine::SchedulerOptions options;
  std::int64_t page_size, arrivals, burst, cancels;  // arrivals, cancels: percent of steps
  std::int64_t priorities, families, longest;
};

SimulatedSetting draw_setting(Dice& dice);
// Without an identity and an arrival.
SimulatedRequest draw_request(Dice& dice, const SimulatedSetting& setting);

}  // namespace tessera::test
