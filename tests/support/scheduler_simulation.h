// Runs a Scheduler against a fake model and a fake pool: random requests, arrivals, cancellations,
// priorities, lengths, policies, forks, drafts and prefix hits, all from one seed. Every step is
// checked against the rules, which are written down here a second time, in the slow and simple way.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::test {

struct SimulationResult {
  std::string problem;     // empty, or the first rule that was broken, with the step
  std::uint64_t hash = 0;  // of all admissions and plans
  std::int64_t steps = 0;
  std::int64_t accepted = 0;  // requests
  std::int64_t refused = 0;   // could never have run
  std::int64_t forks = 0;
  std::int64_t finished = 0;   // requests and forks, with all their tokens
  std::int64_t cancelled = 0;  // in the queue or running
  std::int64_t exhausted = 0;  // had the whole pool, and no bound on their answers
  std::int64_t preemptions = 0;
  std::int64_t overdue = 0;        // admissions before better priorities
  std::int64_t cached_tokens = 0;  // prefix hits
  std::int64_t drafted_tokens = 0;
  std::int64_t longest_wait = 0;  // steps in the queue, all stays together

  SimulationResult& operator+=(const SimulationResult& other);
};

// Ends when `requests` requests have been accepted and all are gone, or at the first problem.
SimulationResult simulate_scheduler(std::uint64_t seed, std::int64_t requests);

}  // namespace tessera::test
