// Guesses the next tokens of streams, for one pass of the model to check.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/scheduler.h"
#include "tessera/context.h"
#include "tessera/model.h"
#include "tessera/speculation.h"

namespace tessera::engine {

// A stream that wants guesses.
struct Guess {
  RequestId id = 0;
  std::span<const std::int32_t> ids{};  // its tokens so far
  std::int64_t count = 0;               // wanted
  std::vector<std::int32_t>* drafts = nullptr;
};

class Speculator {
 public:
  virtual ~Speculator() = default;
  // Fills the drafts of each stream, with as many as wanted or fewer. If it throws, forget() the
  // streams: what was read for them may be half written.
  virtual void guess(std::span<Guess> streams) = 0;
  // What one more guess for all streams takes, as measured; 0: next to nothing, or not known yet.
  virtual double seconds_per_guess() const { return 0; }
  // The stream has ended.
  virtual void forget(RequestId id) = 0;
};

struct SpeculatorLimits {
  std::int64_t context = 0;  // tokens of the longest stream
  std::int64_t max_sequences = 0;
  std::int64_t max_step_tokens = 0;
};

// Null if speculation is off. Refuses a draft model that does not go with the model.
std::unique_ptr<Speculator> make_speculator(Context& ctx, const Model& model,
                                            const SpeculationOptions& options,
                                            const SpeculatorLimits& limits);

}  // namespace tessera::engine
